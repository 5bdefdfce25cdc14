// Names of the module config that most files of this module use.
#pragma once

#include "qft/config/dialects.h"
#include "qft/config/value.h"

namespace qft::dialects {

using config::parse_file;
using config::parse_json;
using config::Purpose;
using config::RunConfig;
using config::Setting;
using config::Translation;
using config::Value;
using config::WorldClaim;

}  // namespace qft::dialects
