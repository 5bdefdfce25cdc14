// Encodes texts from a script, for comparison with HF tokenizers.
//
// stdin:  { uint32 size, bytes } per text
// stdout: { uint32 count, int32 ids } per text, then { uint32 size, bytes } for each of decode(ids),
//         decode(ids, skip_special) and the joined pieces of a StreamDecoder
//
// A text that encode() rejects gives count 0xFFFFFFFF and nothing more.
#include "qft/core/error.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

void put(const void* data, std::size_t size) {
  qft::require(size == 0 || std::fwrite(data, 1, size, stdout) == size, "cannot write to stdout");
}
void put_text(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  put(&size, sizeof size);
  put(text.data(), text.size());
}
bool get(void* data, std::size_t size) {
  return std::fread(data, 1, size, stdin) == size;
}

std::string stream(const qft::tokenizer::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  qft::tokenizer::StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

void serve(const char* dir) {
  const auto tokenizer = qft::tokenizer::Tokenizer::load(dir);
  std::string text;
  std::vector<std::int32_t> ids;
  for (std::uint32_t size; get(&size, sizeof size);) {
    text.resize(size);
    qft::require(get(text.data(), size), "the input ends inside a text");
    ids.clear();
    std::uint32_t count = UINT32_MAX;
    try {
      tokenizer->encode(text, ids);
    } catch (const qft::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      put(&count, sizeof count);
      continue;
    }
    count = static_cast<std::uint32_t>(ids.size());
    put(&count, sizeof count);
    put(ids.data(), ids.size() * sizeof ids[0]);
    put_text(tokenizer->decode(ids));
    put_text(tokenizer->decode(ids, true));
    put_text(stream(*tokenizer, ids));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: tokenizer_pipe DIR < texts > ids\n"), qft::kExitUsage;
  try {
    serve(argv[1]);
  } catch (const qft::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
