#include "records.h"

namespace qft::checkpoint {

using nlohmann::json;

json to_json(const std::vector<FileRecord>& files) {
  json result = json::array();
  for (const FileRecord& f : files) result.push_back({{"name", f.name}, {"bytes", f.bytes}, {"checksum", f.checksum}});
  return result;
}

json to_json(const Box& box) {
  return {{"start", box.start}, {"extent", box.extent}};
}

Box box_from_json(const json& j) {
  Box box;
  for (auto [key, list] : {std::pair{"start", &box.start}, {"extent", &box.extent}}) {
    require(j.at(key).is_array(), "\"{}\" of a box is {}: it is damaged", key, j.at(key).dump());
    for (const json& n : j.at(key)) list->push_back(integer_of<std::int64_t>(n));
  }
  return box;
}

namespace {

json to_json(const std::vector<RangeRecord>& ranges) {
  json result = json::array();
  for (const RangeRecord& r : ranges)
    result.push_back({{"begin", r.begin}, {"end", r.end}, {"file", r.file}, {"entry", r.entry}});
  return result;
}

std::vector<RangeRecord> ranges_from_json(const json& list) {
  std::vector<RangeRecord> ranges;
  for (const json& r : list)
    ranges.push_back({integer_of<std::uint64_t>(r.at("begin")), integer_of<std::uint64_t>(r.at("end")),
                      r.at("file").get<std::string>(), r.at("entry").get<std::string>()});
  return ranges;
}

}  // namespace

/// Writes "ranges" for a tensor that is one whole box, as in version 1, otherwise "boxes" that contain ranges.
json to_json(const std::vector<TensorRecord>& tensors) {
  json result = json::array();
  for (const TensorRecord& t : tensors) {
    json& tensor =
        result.emplace_back(json{{"name", t.name}, {"dtype", std::string(safetensors_name(t.dtype))}, {"shape", t.shape}});
    if (t.boxes.empty() || (t.boxes.size() == 1 && t.boxes.front().box == Box::whole(t.shape))) {
      tensor["ranges"] = t.boxes.empty() ? json::array() : to_json(t.boxes.front().ranges);
      continue;
    }
    for (const BoxRecord& b : t.boxes) {
      json& box = tensor["boxes"].emplace_back(to_json(b.box));
      box["ranges"] = to_json(b.ranges);
    }
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
    run.parent = {p.at("run").get<std::string>(), integer_of<std::int64_t>(p.at("step")), p.at("checksum").get<std::string>(),
                  p.at("path").get<std::string>()};
  }
  return run;
}

std::vector<FileRecord> files_from_json(const json& list) {
  std::vector<FileRecord> files;
  for (const json& f : list)
    files.push_back(
        {f.at("name").get<std::string>(), integer_of<std::uint64_t>(f.at("bytes")), f.at("checksum").get<std::string>()});
  return files;
}

std::vector<TensorRecord> tensors_from_json(const json& list, int version) {
  std::vector<TensorRecord> tensors;
  for (const json& j : list) {
    TensorRecord& tensor = tensors.emplace_back();
    tensor.name = j.at("name").get<std::string>();
    tensor.dtype = dtype_from_safetensors(j.at("dtype").get<std::string>());
    for (const json& size : j.at("shape")) tensor.shape.push_back(integer_of<std::int64_t>(size));
    if (!j.contains("boxes")) {
      auto ranges = ranges_from_json(j.at("ranges"));
      if (!ranges.empty()) tensor.boxes.push_back({Box::whole(tensor.shape), std::move(ranges)});
      continue;
    }
    require(version >= 2 && !j.contains("ranges"), "tensor '{}' has boxes in a manifest of version {}{}: it is damaged",
            tensor.name, version, j.contains("ranges") ? ", and ranges too" : "");
    for (const json& box : j.at("boxes")) tensor.boxes.push_back({box_from_json(box), ranges_from_json(box.at("ranges"))});
  }
  return tensors;
}

}  // namespace qft::checkpoint
