// What a run's saved models and exports say of the text that they were trained on: its chat template and the token that ends
// answers.
#pragma once

#include "qft/config/run_config.h"
#include "qft/model/tokenizer_changes.h"

#include <filesystem>

namespace qft::engine {

/// Of a model that this run trains. The chat template is absent where that of the tokenizer renders the same text, and in stage
/// pt. Throws Error where the template does not fit the tokenizer.
model::TokenizerChanges trained_text(const config::RunConfig& config);

/// The same for a save or an export, which do not fail for it: a warning says why the base's files are written as they are.
model::TokenizerChanges saved_text(const config::RunConfig& config);

/// Of an export. By the run's `template`, where it names one: a warning says where the adapter's folder has something else.
/// Else what the adapter's folder has. Logs what is taken.
model::TokenizerChanges exported_text(const config::RunConfig& config, const std::filesystem::path& adapter);

}  // namespace qft::engine
