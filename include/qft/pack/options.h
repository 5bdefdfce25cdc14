// The options of a run file that shape a pack, in one list: packs are described, compared and taken by it.
#pragma once

#include "qft/config/run_config.h"
#include "qft/pack/format.h"

#include <filesystem>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// What PackAttributes::template_options holds: the values of the keys that change a template, null where one leaves it
/// as it is. Throws ConfigError where there is no such template.
nlohmann::json template_options(const config::RunConfig& config);

/// Compares `config` with a pack that it names. A key that the run file or an override gives must have the pack's value:
/// otherwise throws ConfigError with every such key, both values and the way out. A key that is not given takes the pack's value,
/// with a note in config.notes where that is not the default. For a pack of an older version only what it records is compared.
void take_pack_options(config::RunConfig& config, const PackAttributes& pack, const std::filesystem::path& path);

/// The same for the packs that the keys `pack` and `eval_pack` name and that `purpose` (train, eval, plan) reads. Not
/// collective: every rank opens the files. Throws Error where one cannot be read.
void take_pack_options(config::RunConfig& config, config::Purpose purpose);

}  // namespace qft::pack
