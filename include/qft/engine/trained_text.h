// The chat template and the end token of answers that saved models and exports record.
#pragma once

#include "qft/config/run_config.h"
#include "qft/model/tokenizer_changes.h"

#include <filesystem>

namespace qft::engine {

/// Returns the changes for a model that this run trains. No chat template if the tokenizer's own renders the same text, and none
/// in stage pt. Throws Error if the template does not fit the tokenizer.
model::TokenizerChanges trained_text(const config::RunConfig& config);

/// The same for a save or an export. Does not throw: warns why the base model's files are written unchanged.
model::TokenizerChanges saved_text(const config::RunConfig& config);

/// Returns the changes for an export and logs them: those of the run's `template` if the run file names one (with a warning if
/// the adapter's folder differs), else those of the adapter's folder.
model::TokenizerChanges exported_text(const config::RunConfig& config, const std::filesystem::path& adapter);

}  // namespace qft::engine
