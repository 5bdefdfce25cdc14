#include "layout.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/pack/inputs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <unistd.h>

namespace qft::pack {

std::uint32_t frame_crc(const io::File& file, std::vector<ByteRange> datasets) {
  std::sort(datasets.begin(), datasets.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  datasets.push_back({file.size(), file.size()});
  std::uint32_t crc = 0;
  std::uint64_t at = 0;
  std::vector<char> bytes(1 << 20);
  for (const ByteRange& dataset : datasets) {
    while (at < dataset.begin) {
      const std::uint64_t n = std::min<std::uint64_t>(bytes.size(), dataset.begin - at);
      file.pread(at, bytes.data(), n);
      crc = crc32c(bytes.data(), n, crc);
      at += n;
    }
    at = std::max(at, dataset.end);
  }
  return crc;
}

using nlohmann::json;

namespace {

std::int64_t bytes_of(const Sizes& elements) {
  std::int64_t bytes = 0;
  for (std::size_t a = 0; a < kPackArrays; ++a)
    bytes += elements[a] * static_cast<std::int64_t>(io::h5::size_of(kPackArrayInfo[a].type));
  return bytes;
}

void write_attributes(io::h5::File& file, const PackAttributes& a, bool weighted) {
  json sources = json::array();
  std::int64_t dropped = 0, truncated = 0;
  for (const PackSource& s : a.sources) {
    sources.push_back({{"name", s.name},
                       {"hash", s.hash},
                       {"files", files_as_json(s)},
                       {"records", s.records},
                       {"items", s.items},
                       {"dropped", s.dropped},
                       {"truncated", s.truncated}});
    dropped += s.dropped;
    truncated += s.truncated;
  }
  file.set_string("format", kPackFormatName);
  const bool varying = a.sequences_per_item == 0;
  file.set_int("format_version", varying ? kVaryingPackVersion : weighted ? kWeightedPackVersion : kPackFormatVersion);
  file.set_string("fingerprint", a.fingerprint());
  file.set_string("tokenizer_hash", a.tokenizer_hash);
  file.set_string("template_hash", a.template_hash);
  file.set_string("template", a.template_name);
  file.set_string("stage", a.stage);
  file.set_int("vocab_size", a.vocab_size);
  file.set_int("cutoff_len", a.cutoff_len);
  file.set_string("options", a.options.dump());
  file.set_string("template_options", a.template_options.dump());
  file.set_string("sources", sources.dump());
  file.set_string("category_names", json(a.category_names).dump());
  file.set_int("sequences_per_item", a.sequences_per_item);
  if (varying) file.set_int("max_item_sequences", a.max_item_sequences);
  file.set_int("max_item_tokens", a.max_item_tokens);
  file.set_int("dropped", dropped);
  file.set_int("truncated", truncated);
}

void create_arrays(io::h5::File& file, const Sizes& elements) {
  for (std::size_t a = 0; a < kPackArrays; ++a) {
    if (!has_array(a, has_weights(elements))) continue;
    const PackArrayInfo& info = kPackArrayInfo[a];
    const auto count = static_cast<std::uint64_t>(elements[a]) + (info.offsets_into ? 1 : 0);
    const std::vector<std::uint64_t> shape =
        info.columns == 1 ? std::vector{count} : std::vector{count / info.columns, info.columns};
    file.create_dataset(info.name, info.type, shape);
  }
  file.create_dataset(kFrameCrc, io::h5::Type::u32, {1});
}

/// Call after everything except the arrays' contents is written.
void write_frame_crc(const std::filesystem::path& path, const io::h5::File& file) {
  std::vector<ByteRange> datasets;
  for (const std::string& name : file.list()) {
    const io::h5::Dataset dataset = file.dataset(name);
    datasets.push_back({dataset.offset(), dataset.offset() + dataset.bytes()});
  }
  const std::uint32_t crc = frame_crc(io::File::open_read(path), datasets);
  OutputFile(path, 0).write(file.dataset(kFrameCrc).offset(), &crc, sizeof crc);
}

}  // namespace

std::vector<Sizes> first_elements(const std::vector<PartSummary>& parts) {
  std::vector<Sizes> first(parts.size() + 1, Sizes{});
  for (std::size_t c = 0; c < parts.size(); ++c)
    for (std::size_t a = 0; a < kPackArrays; ++a) first[c + 1][a] = first[c][a] + parts[c].elements[a];
  return first;
}

Offsets lay_out(const std::filesystem::path& path, const PackAttributes& attributes, const Sizes& elements) {
  const std::int64_t bytes = bytes_of(elements);
  OutputFile(path, O_CREAT | O_TRUNC).reserve(bytes, false);  // a full disk must fail here, before HDF5 takes part
  io::h5::File file = io::h5::File::create(path);
  write_attributes(file, attributes, has_weights(elements));
  create_arrays(file, elements);
  file.close();
  OutputFile(path, 0).reserve(bytes, true);
  const io::h5::File made = io::h5::File::open(path);
  write_frame_crc(path, made);
  Offsets offsets{};
  for (std::size_t a = 0; a < kPackArrays; ++a)
    if (has_array(a, has_weights(elements))) offsets[a] = made.dataset(kPackArrayInfo[a].name).offset();
  return offsets;
}

ByteRange byte_range_of(PackArray array, const Offsets& offsets, const Sizes& first, const PartSummary& part) {
  const PackArrayInfo& info = info_of(array);
  const std::size_t a = index_of(array);
  const auto skip = static_cast<std::uint64_t>(first[a]) + (info.offsets_into ? 1 : 0);
  const std::uint64_t begin = offsets[a] + skip * io::h5::size_of(info.type);
  return {begin, begin + static_cast<std::uint64_t>(part.elements[a]) * io::h5::size_of(info.type)};
}

Ownership::Ownership(const Offsets& offsets, const std::vector<Sizes>& first, int owners) {
  const std::int64_t total = bytes_of(first.back());
  std::size_t chunk = 0;
  for (int owner = 0; owner < owners; ++owner) {
    while (chunk + 1 < first.size() && bytes_of(first[chunk]) * owners < total * owner) ++chunk;
    for (std::size_t a = 0; a < kPackArrays; ++a) {
      if (!has_array(a, has_weights(first.back()))) continue;
      const std::uint64_t begin =
          offsets[a] + static_cast<std::uint64_t>(first[chunk][a]) * io::h5::size_of(kPackArrayInfo[a].type);
      cuts_.push_back({begin / kAlignment * kAlignment, owner});
    }
  }
  std::stable_sort(cuts_.begin(), cuts_.end(), [](const Cut& x, const Cut& y) { return x.begin < y.begin; });
}

std::vector<ByteRange> Ownership::pieces(int owner, ByteRange byte_range) const {
  std::vector<ByteRange> mine;
  auto next = std::upper_bound(cuts_.begin(), cuts_.end(), byte_range.begin,
                               [](std::uint64_t at, const Cut& cut) { return at < cut.begin; });
  for (; byte_range.begin < byte_range.end; ++next) {
    const int who = next == cuts_.begin() ? 0 : std::prev(next)->owner;
    const std::uint64_t stop = next == cuts_.end() ? byte_range.end : std::min(byte_range.end, next->begin);
    if (who == owner && byte_range.begin < stop) mine.push_back({byte_range.begin, stop});
    byte_range.begin = stop;
  }
  return mine;
}

OutputFile::OutputFile(const std::filesystem::path& path, int flags)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666)) {
  check(fd_ >= 0, "open");
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::check(bool ok, const char* action) const {
  if (!ok)
    fail("cannot {} '{}': {}: free or repair its disk, then start again: finished parts are kept", action, path_.string(),
         std::strerror(errno));
}

void OutputFile::reserve(std::int64_t bytes, bool keep_size) {
  const std::string action = fmt::format("reserve {} bytes for", bytes);
  const bool done = ::fallocate(fd_, keep_size ? FALLOC_FL_KEEP_SIZE : 0, 0, bytes) == 0;
  check(done || errno == EOPNOTSUPP || errno == ENOSYS, action.c_str());
}

void OutputFile::write(std::uint64_t offset, const void* data, std::uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, from, std::min<std::uint64_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, "write");
    from += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
}

void OutputFile::finish() {
  check(::fsync(fd_) == 0, "sync");
  check(::close(std::exchange(fd_, -1)) == 0, "close");
}

}  // namespace qft::pack
