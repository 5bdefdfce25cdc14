#include "reference_file.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/engine/model_identity.h"
#include "qft/io/hdf5.h"
#include "qft/io/storage.h"

#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <unistd.h>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "qft-reference-logprobs";
constexpr std::int64_t kVersion = 1;
constexpr const char* kSums = "sums";
constexpr const char* kRecomputeHint = "remove the file to compute the reference's log-probabilities again";

/// The attributes of an identity, with a description for messages.
struct IdentityField {
  const char* name;
  std::string ReferenceIdentity::* value;
  const char* description;
};
constexpr std::array<IdentityField, 5> kIdentityFields = {{
    {"pack", &ReferenceIdentity::pack, "the pack's fingerprint"},
    {"model", &ReferenceIdentity::model, "a hash of the reference's config.json and weights"},
    {"adapter", &ReferenceIdentity::adapter, "a hash of the reference's adapters"},
    {"compute", &ReferenceIdentity::compute, "the type that the reference computes in"},
    {"quantization", &ReferenceIdentity::quantization, "how the reference is quantised"},
}};

std::int64_t checksum_of(const ReferenceSums& sums) {
  const std::uint32_t items = crc32c(&sums.items, sizeof sums.items);
  return crc32c(sums.values.data(), sums.values.size() * sizeof(double), items);
}

void require_identity(const io::h5::File& file, const ReferenceIdentity& identity) {
  for (const IdentityField& part : kIdentityFields)
    if (const std::string there = file.get_string(part.name); there != identity.*part.value)
      fail_config("'{}' has log-probabilities of another {} ({}): {} there, {} in this run. Undo the change, or {}",
                  file.path().string(), part.name, part.description, there, identity.*part.value, kRecomputeHint);
}

ReferenceSums read_sums(const io::h5::File& file, std::int64_t items, std::int64_t sequences) {
  const io::h5::Dataset dataset = file.dataset(kSums);
  require(dataset.type() == io::h5::Type::f64 && dataset.elements() == static_cast<std::uint64_t>(sequences),
          "it has {} values of type {}, but the pack has {} sequences", dataset.elements(), io::h5::name_of(dataset.type()),
          sequences);
  ReferenceSums sums{file.get_int("items"), dataset.read_all<double>()};
  require(sums.items >= 0 && sums.items <= items, "it has {} items, but the pack has {}", sums.items, items);
  const std::int64_t stored = file.get_int("crc32c"), found = checksum_of(sums);
  require(stored == found, "CRC32C {:08x} stored, {:08x} found", stored, found);
  return sums;
}

}  // namespace

ReferenceIdentity identity_of(const config::RunConfig& own, const ModelSource& source, const std::string& pack) {
  const ModelIdentity model = model_identity_of(own, source);
  return {pack, model.model, model.adapter, own.model.infer_dtype, model.quantization};
}

fs::path reference_path(const fs::path& pack) {
  return pack.string() + ".reference";
}

void write_reference(const fs::path& path, const ReferenceIdentity& identity, const ReferenceSums& sums) {
  for (std::size_t s = 0; s < sums.values.size(); ++s)
    require(std::isfinite(sums.values[s]),
            "the reference's log-probability of sequence {} of the pack is {}: is the reference model complete?", s,
            sums.values[s]);
  io::Storage& storage = io::posix_storage();
  const fs::path temp = io::CommitDir::temp_path(path, std::to_string(getpid()));
  try {
    io::h5::File file = io::h5::File::create(temp);
    file.set_string("format", kFormat);
    file.set_int("format_version", kVersion);
    for (const IdentityField& part : kIdentityFields) file.set_string(part.name, identity.*part.value);
    file.set_int("items", sums.items);
    file.set_int("crc32c", checksum_of(sums));
    file.create_dataset<double>(kSums, sums.values.size()).write<double>(0, std::span<const double>(sums.values));
    file.close();
    io::sync_file(temp);
    storage.rename(temp, path);
    storage.sync_directory(path.parent_path());
  } catch (const Error& e) {
    std::error_code ignored;
    fs::remove(temp, ignored);
    fail("cannot write the reference's log-probabilities beside the pack, to '{}': {}", path.string(), e.what());
  }
}

std::optional<ReferenceSums> read_reference(const fs::path& path, const ReferenceIdentity& identity, std::int64_t items,
                                            std::int64_t sequences) {
  if (!fs::exists(path)) return {};
  try {
    const io::h5::File file = io::h5::File::open(path);
    require(file.has_attribute("format") && file.get_string("format") == kFormat, "it is another kind of file");
    const std::int64_t version = file.get_int("format_version");
    require(version == kVersion, "it has format {}, but this program reads {}", version, kVersion);
    require_identity(file, identity);
    return read_sums(file, items, sequences);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& e) {
    fail("'{}' cannot be used: {}; {}", path.string(), e.what(), kRecomputeHint);
  }
}

}  // namespace qft::engine
