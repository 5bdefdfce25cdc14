// Writers of export_model() (model/export.h). Private to model.
#pragma once

#include "qft/model/export.h"

#include "merge.h"

namespace qft::model {

/// Write into the empty folder `target`.
ExportReport export_bitsandbytes(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                                 const std::filesystem::path& target);
ExportReport export_gguf(io::Storage& storage, const ExportRequest& request, MergedModel& model,
                         const std::filesystem::path& target);

}  // namespace qft::model
