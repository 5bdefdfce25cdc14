#include "qft/checkpoint/manifest.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/member.h"
#include "qft/io/file.h"

#include <algorithm>
#include <utility>

#include "records.h"
#include <fmt/ranges.h>

namespace qft::checkpoint {
namespace {

using nlohmann::json;

Manifest from_json(json document, std::string_view text) {
  require(document.is_object() && document.value("format", json()) == kManifestFormat, "it is not a checkpoint's manifest");
  const int version = integer_of<int>(document.at("version"));
  require(version >= kOldestManifestVersion && version <= kManifestVersion,
          "it has version {}, this qft reads versions {} to {}: use the qft that wrote it", version, kOldestManifestVersion,
          kManifestVersion);
  // The checksum covers the content only; this finds changes of the text that keep its meaning.
  require(document.dump(1) + "\n" == text, "its text was changed after it was written: it is damaged");
  const std::string checksum = document.at("checksum").get<std::string>();
  document.erase("checksum");
  const std::string actual = hash_hex(document.dump());
  require(actual == checksum, "its content has checksum {}, it says {}: it is damaged", actual, checksum);

  Manifest m;
  m.step = integer_of<std::int64_t>(document.at("step"));
  m.world_size = integer_of<int>(document.at("world_size"));
  m.qft_version = document.at("qft_version").get<std::string>();
  m.files = files_from_json(document.at("files"));
  m.tensors = tensors_from_json(document.at("tensors"), version);
  m.state = std::move(document.at("state"));
  if (document.contains("run")) m.run = run_from_json(document.at("run"));
  m.checksum = checksum;
  m.check();
  return m;
}

/// Throws Error unless the ranges of a box, in order, cover it exactly once.
void check_box(const TensorRecord& tensor, const BoxRecord& record, const Manifest& manifest) {
  const std::string what = record.box == Box::whole(tensor.shape)
                               ? fmt::format("tensor '{}'", tensor.name)
                               : fmt::format("the box {} of tensor '{}'", record.box.describe(), tensor.name);
  const std::uint64_t total = record.box.elements();
  std::uint64_t next = 0;
  std::string last;
  for (const RangeRecord& r : record.ranges) {
    require(manifest.find_file(r.file) != nullptr, "{} lies in '{}', which is not listed", what, r.file);
    require(r.begin <= r.end && r.end <= total, "{} has {} elements, but '{}' holds [{}, {})", what, total, r.file, r.begin,
            r.end);
    require(r.begin >= next, "elements [{}, {}) of {} are in both '{}' and '{}'", r.begin, std::min(next, r.end), what, last,
            r.file);
    require(r.begin == next, "elements [{}, {}) of {} are in no file", next, r.begin, what);
    next = r.end;
    last = r.file;
  }
  require(next == total, "elements [{}, {}) of {} are in no file", next, total, what);
}

/// Throws Error unless the boxes cover the tensor exactly once: disjoint, with as many elements in total as the tensor.
void check_boxes(const TensorRecord& tensor, const Manifest& manifest) {
  const std::uint64_t total = tensor.elements();
  const auto& boxes = tensor.boxes;
  require(total == 0 || !boxes.empty(), "elements [0, {}) of tensor '{}' are in no file", total, tensor.name);
  require(boxes.size() <= kMaxBoxes, "tensor '{}' lies in {} boxes, more than {}", tensor.name, boxes.size(), kMaxBoxes);
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& box = boxes[i].box;
    if (!box.inside(tensor.shape))
      fail("tensor '{}' has shape [{}], the box {} is not inside it", tensor.name, fmt::join(tensor.shape, ", "), box.describe());
    for (std::size_t j = 0; j < i; ++j)
      if (!disjoint(box, boxes[j].box))
        fail("elements of tensor '{}' are in both {} and {}", tensor.name, boxes[j].box.describe(), box.describe());
    check_box(tensor, boxes[i], manifest);
    elements += box.elements();
  }
  require(elements == total, "tensor '{}' has {} elements, but its boxes hold {}", tensor.name, total, elements);
}

template <class Records>
auto find_by_name(const Records& records, std::string_view name) -> decltype(records.data()) {
  const auto it = std::lower_bound(records.begin(), records.end(), name,
                                   [](const auto& record, std::string_view n) { return record.name < n; });
  return it != records.end() && it->name == name ? &*it : nullptr;
}

template <class Records>
void check_names(const Records& records, const char* what) {
  for (std::size_t i = 0; i + 1 < records.size(); ++i)
    require(records[i].name < records[i + 1].name, "{} '{}' is listed twice or out of order", what, records[i + 1].name);
}

}  // namespace

std::uint64_t TensorRecord::elements() const {
  std::uint64_t n = 1;
  for (const std::int64_t d : shape)
    require(d >= 0 && !__builtin_mul_overflow(n, static_cast<std::uint64_t>(d), &n), "tensor '{}' has an impossible shape", name);
  return n;
}

void TensorRecord::add(const Box& box, RangeRecord range) {
  auto b = std::lower_bound(boxes.begin(), boxes.end(), box,
                            [](const BoxRecord& record, const Box& wanted) { return record.box < wanted; });
  if (b == boxes.end() || b->box != box) b = boxes.insert(b, {box, {}});
  const auto r = std::upper_bound(b->ranges.begin(), b->ranges.end(), range, [](const RangeRecord& x, const RangeRecord& y) {
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  b->ranges.insert(r, std::move(range));
}

std::string Manifest::to_text() const {
  json document = {{"format", kManifestFormat},
                   {"version", kManifestVersion},
                   {"step", step},
                   {"world_size", world_size},
                   {"state", state},
                   {"qft_version", qft_version},
                   {"files", to_json(files)},
                   {"tensors", to_json(tensors)}};
  if (!run.id.empty()) document["run"] = to_json(run);
  try {
    document["checksum"] = hash_hex(document.dump());
    return document.dump(1) + "\n";
  } catch (const json::exception& e) {
    fail("the checkpoint's state cannot be written as JSON: {}", e.what());
  }
}

Manifest Manifest::parse(std::string_view text) {
  try {
    return from_json(parse_json(text, "it"), text);
  } catch (const json::exception& e) {
    fail("it is damaged: {}", e.what());
  }
}

Manifest Manifest::read(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kManifestFile;
  require(std::filesystem::exists(path), "'{}' has no {}: it is not a checkpoint of qft, or an unfinished one", dir.string(),
          kManifestFile);
  const std::string text = io::read_text_file(member_of(dir, kManifestFile), std::uint64_t{1} << 31);
  try {
    return parse(text);
  } catch (const Error& e) {
    fail("'{}': {}", path.string(), e.what());
  }
}

void Manifest::check() const {
  require(step >= 0 && world_size > 0, "it has step {} and world size {}", step, world_size);
  for (const FileRecord& f : files)
    require(is_plain_path(f.name) && f.name != kManifestFile, "it lists a file called '{}'", f.name);
  check_names(files, "file");
  check_names(tensors, "tensor");
  for (const TensorRecord& t : tensors) check_boxes(t, *this);
}

const TensorRecord* Manifest::find(std::string_view name) const {
  return find_by_name(tensors, name);
}
const FileRecord* Manifest::find_file(std::string_view name) const {
  return find_by_name(files, name);
}

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
