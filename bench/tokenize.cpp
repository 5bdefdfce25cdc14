// Encodes the texts in a file once, in a fresh process, on one thread; encode.py starts it.
//
// usage: bench_tokenize TOKENIZER_DIR TEXTS [passes]     TEXTS: { uint32 size, bytes } per text
//
// Prints one JSON line: seconds to load, bytes and seconds for the first and the second half of the texts (the first half meets
// empty caches), tokens, and a checksum of the ids. Seconds are CPU time, so other processes do not count.
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace {

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<std::string_view> split_texts(const std::string& file) {
  std::vector<std::string_view> texts;
  for (std::size_t at = 0; at + 4 <= file.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, file.data() + at, 4);
    qft::require(at + 4 + size <= file.size(), "the texts end inside a text");
    texts.push_back(std::string_view(file).substr(at + 4, size));
    at += 4 + size;
  }
  return texts;
}

void measure(const char* dir, const char* path, int passes) {
  const double start = now();
  const auto tokenizer = qft::tokenizer::Tokenizer::load(dir);
  const double load = now() - start;
  std::ifstream in(path, std::ios::binary);
  qft::require(in.good(), "cannot read {}", path);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const std::vector<std::string_view> texts = split_texts(file);
  std::vector<std::int32_t> ids;
  std::size_t bytes[2] = {0, 0};
  double seconds[2] = {0, 0};
  for (int pass = 0; pass < passes; ++pass) {
    ids.clear();
    for (std::size_t half = 0, i = 0; half < 2; ++half) {
      const double begin = now();
      for (; i < (half + 1) * texts.size() / 2; ++i) {
        tokenizer->encode(texts[i], ids);
        bytes[half] += texts[i].size();
      }
      seconds[half] += now() - begin;
    }
  }
  fmt::print("{{\"load\": {:.4f}, \"bytes\": [{}], \"seconds\": [{:.6f}], \"tokens\": {}, \"crc\": {}}}\n", load,
             fmt::join(bytes, ", "), fmt::join(seconds, ", "), ids.size(), qft::crc32c(ids.data(), ids.size() * sizeof ids[0]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fmt::print(stderr, "usage: bench_tokenize TOKENIZER_DIR TEXTS [passes]\n"), qft::kExitUsage;
  try {
    measure(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 1);
  } catch (const qft::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
