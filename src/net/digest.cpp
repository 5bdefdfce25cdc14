#include "qft/net/digest.h"

#include "qft/core/error.h"

#include <array>
#include <openssl/evp.h>

#include "library.h"
#include <fmt/format.h>

namespace qft::net {
namespace {

/// The functions used from libcrypto, the same in 1.1 and 3.
struct Crypto {
  decltype(EVP_MD_CTX_new)* make;
  decltype(EVP_MD_CTX_free)* free;
  decltype(EVP_DigestInit_ex)* init;
  decltype(EVP_DigestUpdate)* update;
  decltype(EVP_DigestFinal_ex)* finish;
  decltype(EVP_sha1)* sha1;
  decltype(EVP_sha256)* sha256;

  Crypto() {
    const Library library({"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"},
                          "checksums of a hub's files need OpenSSL (Debian: libssl3)");
    library.find("EVP_MD_CTX_new", make);
    library.find("EVP_MD_CTX_free", free);
    library.find("EVP_DigestInit_ex", init);
    library.find("EVP_DigestUpdate", update);
    library.find("EVP_DigestFinal_ex", finish);
    library.find("EVP_sha1", sha1);
    library.find("EVP_sha256", sha256);
  }
};

const Crypto& crypto() {
  static const Crypto loaded;
  return loaded;
}

}  // namespace

struct Digest::State {
  EVP_MD_CTX* context = crypto().make();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { crypto().free(context); }
};

Digest::Digest(Kind kind) : state_(std::make_unique<State>()) {
  const EVP_MD* algorithm = kind == Kind::sha1 ? crypto().sha1() : crypto().sha256();
  require(crypto().init(state_->context, algorithm, nullptr) == 1, "OpenSSL does not provide {}: a policy may forbid it",
          kind == Kind::sha1 ? "SHA-1" : "SHA-256");
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(const void* data, std::size_t bytes) {
  require(crypto().update(state_->context, data, bytes) == 1, "OpenSSL rejected {} bytes for a checksum", bytes);
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  require(crypto().finish(state_->context, bytes.data(), &size) == 1, "OpenSSL did not finish a checksum");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace qft::net
