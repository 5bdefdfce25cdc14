#include "records.h"

namespace qft::checkpoint {

using nlohmann::json;

json to_json(const std::vector<FileRecord>& files) {
  json result = json::array();
  for (const FileRecord& f : files)
    result.push_back({{"name", f.name}, {"bytes", f.bytes}, {"checksum", f.checksum}});
  return result;
}

json to_json(const Box& box) { return {{"start", box.start}, {"extent", box.extent}}; }

Box box_from_json(const json& j) {
  Box box;
  for (const json& n : j.at("start")) box.start.push_back(integer_of<std::int64_t>(n));
  for (const json& n : j.at("extent")) box.extent.push_back(integer_of<std::int64_t>(n));
  return box;
}

json to_json(const std::vector<TensorRecord>& tensors) {
  json result = json::array();
  for (const TensorRecord& t : tensors) {
    json ranges = json::array();
    for (const RangeRecord& r : t.ranges) {
      json& range = ranges.emplace_back(json{{"begin", r.begin}, {"end", r.end}, {"file", r.file}, {"entry", r.entry}});
      if (r.box != Box::whole(t.shape)) range["box"] = to_json(r.box);  // absent: the whole tensor
    }
    result.push_back({{"name", t.name},
                      {"dtype", std::string(safetensors_name(t.dtype))},
                      {"shape", t.shape},
                      {"ranges", std::move(ranges)}});
  }
  return result;
}

json to_json(const RunRecord& run) {
  json result = {{"id", run.id}, {"number", run.number}};
  if (const auto& p = run.parent)
    result["parent"] = {{"run", p->run}, {"step", p->step}, {"checksum", p->checksum}, {"path", p->path}};
  return result;
}

RunRecord run_from_json(const json& j) {
  RunRecord run{j.at("id").get<std::string>(), integer_of<std::int64_t>(j.at("number")), {}};
  if (j.contains("parent")) {
    const json& p = j.at("parent");
    run.parent = {p.at("run").get<std::string>(), integer_of<std::int64_t>(p.at("step")),
                  p.at("checksum").get<std::string>(), p.at("path").get<std::string>()};
  }
  return run;
}

std::vector<FileRecord> files_from_json(const json& list) {
  std::vector<FileRecord> files;
  for (const json& f : list)
    files.push_back({f.at("name").get<std::string>(), integer_of<std::uint64_t>(f.at("bytes")),
                     f.at("checksum").get<std::string>()});
  return files;
}

std::vector<TensorRecord> tensors_from_json(const json& list) {
  std::vector<TensorRecord> tensors;
  for (const json& j : list) {
    TensorRecord tensor;
    tensor.name = j.at("name").get<std::string>();
    tensor.dtype = dtype_from_safetensors(j.at("dtype").get<std::string>());
    for (const json& size : j.at("shape")) tensor.shape.push_back(integer_of<std::int64_t>(size));
    for (const json& r : j.at("ranges"))
      tensor.ranges.push_back({r.contains("box") ? box_from_json(r.at("box")) : Box::whole(tensor.shape),
                               integer_of<std::uint64_t>(r.at("begin")), integer_of<std::uint64_t>(r.at("end")),
                               r.at("file").get<std::string>(), r.at("entry").get<std::string>()});
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace qft::checkpoint
