// tokenizer.json: any bytes give a tokenizer or an Error; a tokenizer encodes any text and decodes its own tokens.
#include "qft/core/error.h"
#include "qft/tokenizer/tokenizer.h"

#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  static const std::string texts[] = {"Hello the  the\n\n 123 'll", "中文 e\u0301 \U0001F600 <|im_start|>x", "",
                                      std::string(300, ' ') + "a" + std::string(300, '\n')};
  folder.write("tokenizer.json", data, size);
  try {
    const auto tokenizer = qft::tokenizer::Tokenizer::load(folder.path());
    for (const std::string& text : texts) {
      const auto ids = tokenizer->encode(text);
      qft::tokenizer::StreamDecoder decoder(*tokenizer);
      std::string streamed;
      for (const std::int32_t id : ids) streamed += decoder.push(id);
      streamed += decoder.finish();
      if (streamed != tokenizer->decode(ids)) std::abort();
    }
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
