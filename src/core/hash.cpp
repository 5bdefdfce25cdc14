#include "qft/core/hash.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include <xxhash.h>

namespace qft {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

std::uint32_t crc_portable(const unsigned char* p, std::size_t n, std::uint32_t crc) {
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kCrcTable[(crc ^ *p) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc_sse42(const unsigned char* p, std::size_t n, std::uint32_t crc) {
  std::uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; n > 0; --n, ++p) crc = __builtin_ia32_crc32qi(crc, *p);
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return ~crc_sse42(p, bytes, ~seed);
#endif
  return ~crc_portable(p, bytes, ~seed);
}

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_->xxh, data, bytes);
}

std::string Hasher::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_hex(std::string_view text) {
  Hasher hasher;
  hasher.update(text);
  return hasher.hex();
}

std::string hash_file(const std::filesystem::path& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  require(file != nullptr, "cannot open '{}' for hashing: {}", path.string(), std::strerror(errno));
  Hasher hasher;
  std::vector<char> buffer(1 << 20);
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hasher.update(buffer.data(), n);
    activity::tick();
  }
  require(!std::ferror(file.get()), "cannot read '{}': {}", path.string(), std::strerror(errno));
  return hasher.hex();
}

}  // namespace qft
