#include "qft/io/torch_file.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "pickle.h"
#include "zip.h"

namespace qft::io {
namespace {

using Kind = PickleValue::Kind;

constexpr std::uint64_t kMaxPickleBytes = 64 << 20;
constexpr std::size_t kMaxDepth = 8, kMaxName = 1000;
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2", kParameter = "torch._utils._rebuild_parameter";

struct StorageType {
  std::string_view global;
  std::optional<DType> dtype;  // none: the storage does not tell the type
};
constexpr std::array<StorageType, 11> kStorages{{{"torch.DoubleStorage", DType::f64},
                                                 {"torch.FloatStorage", DType::f32},
                                                 {"torch.HalfStorage", DType::f16},
                                                 {"torch.BFloat16Storage", DType::bf16},
                                                 {"torch.LongStorage", DType::i64},
                                                 {"torch.IntStorage", DType::i32},
                                                 {"torch.ShortStorage", DType::i16},
                                                 {"torch.CharStorage", DType::i8},
                                                 {"torch.ByteStorage", DType::u8},
                                                 {"torch.BoolStorage", DType::boolean},
                                                 {"torch.storage.UntypedStorage", std::nullopt}}};

std::vector<std::string_view> known_globals() {
  std::vector<std::string_view> names{kTensor, kParameter};
  for (const StorageType& row : kStorages) names.push_back(row.global);
  return names;
}

struct Storage {
  DType dtype = DType::f32;
  ZipRecord record;
  std::uint64_t elements = 0;
};

struct Tensors {
  std::vector<TensorEntry> entries;
  std::vector<std::vector<std::int64_t>> strides;
};

bool is_row_major(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

void require_stored(const ZipRecord& record, std::string_view name) {
  require(record.stored, "its record '{}' is compressed, which torch.save() never does: load it and save it again", name);
}

/// Finds the tensors among a pickle's values, and their bytes in the zip's records.
class Collector {
 public:
  Collector(const Pickle& pickle, const std::map<std::string, ZipRecord>& records, std::string folder)
      : pickle_(pickle), records_(records), folder_(std::move(folder)) {}

  Tensors run() {
    const Kind kind = pickle_[pickle_.root].kind;
    require(kind == Kind::dict, "it is not a dict of tensors by name, but {}",
            kind == Kind::call   ? "a single tensor: save {'NAME': tensor}"
            : kind == Kind::list ? "a list"
                                 : "another value");
    visit(pickle_.root, "", 0);
    return std::move(result_);
  }

 private:
  void visit(PickleRef ref, const std::string& name, std::size_t depth) {
    // A few bytes may share values so often that the tree never ends.
    require(++visits_ <= 2 * pickle_.values.size(), "its pickle repeats its values too often");
    require(depth <= kMaxDepth, "its pickle nests values more than {} deep at '{}'", kMaxDepth, name);
    require(name.size() <= kMaxName, "its pickle has a name of {} letters", name.size());
    const PickleValue& value = pickle_[ref];
    const std::string prefix = name.empty() ? "" : name + ".";
    if (value.kind == Kind::dict) {
      for (std::size_t i = 0; i < value.items.size(); i += 2) visit(value.items[i + 1], prefix + key(value.items[i]), depth + 1);
    } else if (value.kind == Kind::list || value.kind == Kind::tuple) {
      for (std::size_t i = 0; i < value.items.size(); ++i) visit(value.items[i], prefix + std::to_string(i), depth + 1);
    } else if (value.kind == Kind::call) {
      require(!name.empty() && names_.insert(name).second, "it has the tensor '{}' twice", name);
      try {
        add(value, name, 0);
      } catch (const Error& e) {
        fail("tensor '{}' {}", name, e.what());
      }
    }
  }

  std::string key(PickleRef ref) const {
    const PickleValue& value = pickle_[ref];
    require(value.kind == Kind::text || value.kind == Kind::integer, "its pickle has a key that is neither text nor number");
    return value.kind == Kind::text ? value.text : std::to_string(value.integer);
  }

  // Mirrors the result of the torch._utils functions of these names.
  void add(const PickleValue& call, const std::string& name, std::size_t depth) {
    const auto& arguments = pickle_[call.items[1]].items;
    if (pickle_[call.items[0]].text == kParameter) {
      require(depth == 0 && !arguments.empty() && pickle_[arguments[0]].kind == Kind::call, "is a parameter without a tensor");
      return add(pickle_[arguments[0]], name, 1);
    }
    require(pickle_[call.items[0]].text == kTensor && arguments.size() >= 4, "is built in a way that torch does not use");
    const Storage storage = storage_of(pickle_[arguments[0]]);
    TensorEntry entry;
    entry.name = name;
    entry.dtype = storage.dtype;
    entry.shape = sizes(arguments[2], "shape");
    std::vector<std::int64_t> strides = sizes(arguments[3], "strides");
    const PickleValue& offset = pickle_[arguments[1]];
    require(offset.kind == Kind::integer && offset.integer >= 0, "has an invalid offset in its storage");
    check_bounds(entry.shape, strides, static_cast<std::uint64_t>(offset.integer), storage.elements);
    entry.file_offset = storage.record.offset + static_cast<std::uint64_t>(offset.integer) * size_of(storage.dtype);
    if (entry.elements() == 0 || is_row_major(entry.shape, strides)) strides.clear();
    result_.entries.push_back(std::move(entry));
    result_.strides.push_back(std::move(strides));
  }

  std::vector<std::int64_t> sizes(PickleRef ref, const char* what) const {
    const PickleValue& value = pickle_[ref];
    require(value.kind == Kind::tuple && value.items.size() <= 16, "has {} other than a tuple of at most 16 numbers", what);
    std::vector<std::int64_t> result;
    for (const PickleRef item : value.items) {
      require(pickle_[item].kind == Kind::integer && pickle_[item].integer >= 0, "has a negative or non-integer value in its {}",
              what);
      result.push_back(pickle_[item].integer);
    }
    return result;
  }

  // Also checks that the tensor is not larger than its storage: no file may request more memory than it has bytes.
  static void check_bounds(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, std::uint64_t offset,
                           std::uint64_t stored) {
    require(shape.size() == strides.size(), "has {} dimensions and {} strides", shape.size(), strides.size());
    std::uint64_t elements = 1, last = offset;
    bool fits = offset <= stored;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto size = static_cast<std::uint64_t>(shape[i]);
      std::uint64_t reach = 0;
      fits = fits && !__builtin_mul_overflow(elements, size, &elements);
      if (size == 0) continue;
      fits = fits && !__builtin_mul_overflow(size - 1, static_cast<std::uint64_t>(strides[i]), &reach) &&
             !__builtin_add_overflow(last, reach, &last);
    }
    require(fits && (elements == 0 || last < stored), "exceeds its storage of {} elements", stored);
    require(elements <= stored, "repeats elements of its storage ({} of {}): save it with .clone()", elements, stored);
  }

  // ("storage", type, record, device, elements)
  Storage storage_of(const PickleValue& persistent) const {
    require(persistent.kind == Kind::persistent && pickle_[persistent.items[0]].kind == Kind::tuple, "has no storage");
    const auto& id = pickle_[persistent.items[0]].items;
    require(id.size() == 5 && pickle_[id[0]].text == "storage" && pickle_[id[1]].kind == Kind::global &&
                pickle_[id[2]].kind == Kind::text && pickle_[id[4]].kind == Kind::integer && pickle_[id[4]].integer >= 0,
            "has a storage that torch does not write");
    const auto* row = std::ranges::find(kStorages, pickle_[id[1]].text, &StorageType::global);
    require(row != kStorages.end() && row->dtype.has_value(), "has a storage of type '{}'", pickle_[id[1]].text);
    const std::string name = folder_ + "data/" + pickle_[id[2]].text;
    const auto record = records_.find(name);
    require(record != records_.end(), "is in the record '{}', which is missing: copy the file again", name);
    require_stored(record->second, name);
    const auto elements = static_cast<std::uint64_t>(pickle_[id[4]].integer);
    require(elements <= record->second.bytes / size_of(*row->dtype), "has a storage of {} elements in a record of {} bytes",
            elements, record->second.bytes);
    return {*row->dtype, record->second, elements};
  }

  const Pickle& pickle_;
  const std::map<std::string, ZipRecord>& records_;
  std::string folder_;
  Tensors result_;
  std::set<std::string> names_;
  std::size_t visits_ = 0;
};

std::string read_record(const File& file, const ZipRecord& record, std::uint64_t limit, const char* what) {
  require_stored(record, what);
  require(record.bytes <= limit, "its {} has {} bytes, more than {}", what, record.bytes, limit);
  std::string text(record.bytes, '\0');
  file.pread(record.offset, text.data(), record.bytes);
  return text;
}

Tensors read_tensors(const File& file) {
  const auto records = read_zip_directory(file);
  const auto at = std::ranges::find_if(records, [](const auto& r) {
    const std::size_t slash = r.first.find('/');
    return slash != std::string::npos && r.first.substr(slash) == "/data.pkl";
  });
  require(at != records.end(), "it is a zip archive, but not from torch.save(): it has no record data.pkl");
  const std::string folder = at->first.substr(0, at->first.find('/') + 1);
  require(!records.contains(folder + "constants.pkl"),
          "it is a TorchScript program: save its weights, in Python torch.save(torch.jit.load(IN).state_dict(), OUT)");
  if (const auto order = records.find(folder + "byteorder"); order != records.end()) {
    const std::string text = read_record(file, order->second, 16, "byte order");
    require(text == "little", "its byte order is '{}', not 'little': load it and save it again on a little-endian machine", text);
  }
  const Pickle pickle = read_pickle(read_record(file, at->second, kMaxPickleBytes, "pickle"), known_globals());
  return Collector(pickle, records, folder).run();
}

// Files from before torch 1.6 start with this pickled number.
constexpr std::string_view kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

}  // namespace

TorchFile TorchFile::open(const std::filesystem::path& path) {
  TorchFile result(File::open_read(path));
  const std::string lead = result.file_.lead();
  const std::string pointer = describe_pointer(lead, path);
  require(pointer.empty(), "{}", pointer);
  require(!lead.starts_with(kLegacy),
          "'{}' has the format of torch.save() before torch 1.6, which qft does not read: save it again, in Python "
          "torch.save(torch.load('{}', map_location='cpu', weights_only=True), OUT)",
          path.string(), path.string());
  Tensors tensors;
  try {
    tensors = read_tensors(result.file_);
  } catch (const ForeignPickle& e) {
    fail(
        "file of torch.save() '{}': {}. qft reads only tensors and runs nothing. If you trust the source of the file, convert "
        "it once in Python: safetensors.torch.save_file({{k: v.clone().contiguous() for k, v in torch.load('{}', "
        "map_location='cpu', weights_only=False).items()}}, OUT)",
        path.string(), e.what(), path.string());
  } catch (const Error& e) {
    fail("file of torch.save() '{}': {}", path.string(), e.what());
  }
  result.set_entries(std::move(tensors.entries));
  result.strides_ = std::move(tensors.strides);
  return result;
}

void TorchFile::read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const {
  QFT_ASSERT(index_of(entry) < strides_.size(), "'{}' is not an entry of '{}'", entry.name, path().string());
  const std::vector<std::int64_t>& strides = strides_[index_of(entry)];
  if (strides.empty()) return TensorFile::read_checked(entry, first_byte, bytes, dst);
  const std::uint64_t width = size_of(entry.dtype);
  QFT_ASSERT(first_byte % width == 0 && bytes % width == 0, "'{}': bytes [{}, +{}) split an element", entry.name, first_byte,
             bytes);
  std::uint64_t reach = 1;
  for (std::size_t i = 0; i < strides.size(); ++i) reach += static_cast<std::uint64_t>((entry.shape[i] - 1) * strides[i]);
  const Mapping stored(file_, entry.file_offset, reach * width);
  char* to = static_cast<char*>(dst);
  const auto columns = static_cast<std::uint64_t>(entry.shape.back()), step = static_cast<std::uint64_t>(strides.back());
  for (std::uint64_t at = first_byte / width, end = at + bytes / width; at < end;) {
    const std::uint64_t column = at % columns, count = std::min(columns - column, end - at);
    std::uint64_t from = column * step, row = at / columns;
    for (std::size_t i = strides.size() - 1; i-- > 0; row /= static_cast<std::uint64_t>(entry.shape[i]))
      from += row % static_cast<std::uint64_t>(entry.shape[i]) * static_cast<std::uint64_t>(strides[i]);
    for (std::uint64_t k = 0; k < count; ++k, to += width) std::memcpy(to, stored.data() + (from + k * step) * width, width);
    at += count;
  }
}

}  // namespace qft::io
