// Finds, parses, converts and encodes the records of a data file in every format. The first byte selects the format and the
// file's layout.
#include "qft/encode/encoder.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"

#include <iterator>
#include <memory>

#include "encode/fixture.h"

namespace {

using namespace qft::encode;  // NOLINT: a test

struct Format {
  DatasetSpec spec;
  std::unique_ptr<Encoder> encoder;
};

Format make_format(const qft::test::SmallRun& run, Formatting formatting, bool ranking) {
  Format format;
  format.spec.formatting = formatting;
  format.spec.ranking = ranking;
  ColumnNames& columns = format.spec.columns;
  columns.tools = "tools";
  columns.system = "system";
  columns.history = "history";
  columns.chosen = "chosen";
  columns.rejected = "rejected";
  columns.category = "category";
  columns.tags = {"tag"};
  if (formatting != Formatting::alpaca) columns.messages = "messages";
  EncoderOptions options;
  options.kind = ranking ? SampleKind::pair : SampleKind::conversation;
  options.cutoff_len = 64;
  format.encoder = std::make_unique<Encoder>(
      ChatTemplate::from_config(run.config, qft::tokenizer::Tokenizer::load(run.folder.path())), options);
  return format;
}

std::vector<Format> make_formats() {
  const qft::test::SmallRun run;
  std::vector<Format> formats;
  for (const Formatting formatting : {Formatting::alpaca, Formatting::sharegpt, Formatting::openai})
    for (const bool ranking : {false, true}) formats.push_back(make_format(run, formatting, ranking));
  return formats;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Format> formats = make_formats();
  static const std::filesystem::path name = "fuzz.json";
  if (size == 0) return 0;
  const Format& format = formats[data[0] % formats.size()];
  constexpr RecordLayout kLayouts[] = {RecordLayout::json_lines, RecordLayout::json_array, RecordLayout::text_lines};
  const RecordLayout layout = kLayouts[data[0] / formats.size() % std::size(kLayouts)];
  // A copy of the exact size, so that the sanitizer detects a read past the end.
  const std::vector<char> bytes(data + 1, data + size);
  RecordScanner scanner({bytes.data(), bytes.size()}, layout, name);
  RecordConverter converter(format.spec, layout == RecordLayout::text_lines);
  RecordText record;
  try {
    while (scanner.next(record)) {
      try {
        const auto converted = converter.convert(record);
        if (const auto* conversation = std::get_if<Conversation>(&converted))
          static_cast<void>(format.encoder->encode(*conversation));
      } catch (const qft::Error&) {
        // The record is reported and skipped; the next one counts.
      }
    }
  } catch (const qft::Error&) {
    // The file is not a JSON array.
  }
  return 0;
}
