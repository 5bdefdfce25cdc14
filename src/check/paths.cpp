// The paths of a run file.
#include "qft/check/paths.h"

#include "qft/core/error.h"
#include "qft/encode/dataset_info.h"

namespace qft::check {

std::vector<NeededPath> paths_of(const config::RunConfig& c) {
  using Use = NeededPath::Use;
  std::vector<NeededPath> paths;
  const auto add = [&](const char* key, const std::string& path, Use use) {
    if (!path.empty()) paths.push_back({key, path, use});
  };
  const auto add_datasets = [&](const char* key, const std::vector<std::string>& names) {
    if (names.empty()) return;
    try {
      for (const auto& dataset : encode::load_dataset_info(c.data.dataset_dir, names, c.folders))
        for (const auto& file : dataset.files) add(key, file.string(), Use::read);
    } catch (const Error&) {  // said where the run is looked at, with file and key; here all that it is read from must be alike
      add("dataset_dir", c.data.dataset_dir, Use::read);
    }
  };
  add("model_name_or_path", c.model_path(), Use::read);
  add("tokenizer_name_or_path", c.folder_of(c.model.tokenizer_name_or_path), Use::read);
  for (const std::string& adapter : c.model.adapter_name_or_path) add("adapter_name_or_path", c.folder_of(adapter), Use::read);
  add_datasets("dataset", c.data.dataset);
  add_datasets("eval_dataset", c.data.eval_dataset);
  add("pack", c.data.pack, Use::read);
  add("eval_pack", c.data.eval_pack, Use::read);
  add("output_dir", c.training.output_dir, Use::write);
  return paths;
}

}  // namespace qft::check
