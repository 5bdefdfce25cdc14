// The parts of export_model() (model/export.h) that need LibTorch. Private to model.
#pragma once

#include "qft/model/export.h"
#include "qft/model/load.h"

#include <memory>

#include "merged_model.h"

namespace qft::model {

struct ExportCode {
  std::unique_ptr<StoredFormat> (*stored_format)(const StoredQuantization& stored);
  WeightStorage (*weight_storage)(const StoredQuantization& stored, const io::ModelFiles* files);
  /// Decodes a tensor that the files hold quantised, merges it and writes it as `type`.
  void (*write_decoded)(MergedModel& model, const ModelTensor& tensor, DType type, io::ModelWriter& writer);
  /// Both write into the empty folder `target`.
  ExportReport (*bitsandbytes)(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                               const std::filesystem::path& target);
  ExportReport (*gguf)(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                       const std::filesystem::path& target);
};

/// Writes an export's config.json, generation_config.json, and the files of tokenizer and processor.
void write_config_files(io::Storage& storage, const ExportRequest& request, const MergedModel& model,
                        const std::filesystem::path& target);
ExportReport export_bitsandbytes(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                                 const std::filesystem::path& target);
ExportReport export_gguf(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                         const std::filesystem::path& target);

}  // namespace qft::model
