// The one list of run-file options that shape a pack: used to describe a pack, to compare it and to take its options.
#pragma once

#include "qft/config/run_config.h"
#include "qft/pack/format.h"

#include <filesystem>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// Returns the content of PackAttributes::template_options: the values of the keys that change a template, null for a key without
/// effect. Throws ConfigError if the template does not exist.
nlohmann::json template_options(const config::RunConfig& config);

/// Compares `config` with a pack that it names. A key given by the run file or an override must have the pack's value;
/// otherwise throws ConfigError with every such key, both values and the remedy. A key that is not given takes the pack's
/// value, with a note in config.notes if that differs from the default. For a pack of an older version, compares only the
/// options that it records.
void take_pack_options(config::RunConfig& config, const PackAttributes& pack, const std::filesystem::path& path);

/// Does the same for the packs in the keys `pack` and `eval_pack` that `purpose` (train, eval, plan) reads. Not collective: every
/// rank opens the files. Throws Error if a pack cannot be read.
void take_pack_options(config::RunConfig& config, config::Purpose purpose);

}  // namespace qft::pack
