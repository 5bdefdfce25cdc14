// SHA-1 and SHA-256, the hashes that hubs state. Uses OpenSSL's libcrypto, loaded when the first Digest is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace qft::net {

class Digest {
 public:
  enum class Kind : std::uint8_t { sha1, sha256 };
  /// Throws Error if there is no libcrypto.
  explicit Digest(Kind kind);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Returns the lower-case hex digits over all bytes passed to update(). Call it once.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qft::net
