// SHA-1 and SHA-256 as hubs state them, by OpenSSL's libcrypto, which is loaded when the first one is made.
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
  /// Throws Error where there is no libcrypto.
  explicit Digest(Kind kind);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Lower-case hex digits of all that was seen. To be called once.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qft::net
