// Corpora in memory: a hand-built run configuration, a sink that keeps items, a self-deleting folder, and a byte tokenizer.
#pragma once

#include "qft/core/error.h"
#include "qft/pack/corpus.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::test {

struct KeepItems : encode::ItemSink {
  std::vector<encode::EncodedItem> items;
  void add(encode::EncodedItem&& item) override { items.push_back(std::move(item)); }
};

struct EncodedCorpus {
  std::vector<encode::EncodedItem> items;
  std::vector<pack::RecordCounts> counts;  // by dataset
};

inline EncodedCorpus encode_all(const pack::Corpus& corpus) {
  KeepItems sink;
  EncodedCorpus result;
  result.counts.resize(corpus.datasets().size());
  for (std::size_t c = 0; c < corpus.num_chunks(); ++c) {
    const std::vector<pack::RecordCounts> counts = corpus.encode_chunk(c, sink);
    for (std::size_t d = 0; d < counts.size(); ++d) result.counts[d] += counts[d];
  }
  result.items = std::move(sink.items);
  return result;
}

inline EncodedCorpus encode_all(const config::RunConfig& config) {
  return encode_all(*pack::Corpus::open(config, pack::CorpusPart::train));
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "qft-encode-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// Writes a byte-level tokenizer without merges: one token per byte, and the added tokens <|im_start|>, <|im_end|>, <|end|>.
/// Its end token is <|end|>. `extra` is merged into tokenizer_config.json.
inline void write_byte_tokenizer(const TempFolder& folder, const nlohmann::json& extra = nlohmann::json::object()) {
  nlohmann::json vocab, added;
  // GPT-2's printable stand-ins: a byte that is not a printable Latin-1 character becomes U+0100 and up.
  for (int byte = 0, next = 256, id = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int code = printable ? byte : next++;
    std::string text;
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
    vocab[text] = id++;
  }
  int id = 256;
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<|end|>"})
    added.push_back({{"id", id++},
                     {"content", token},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", byte_level},
                                    {"post_processor", nullptr},
                                    {"decoder", byte_level},
                                    {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  nlohmann::json config = {{"eos_token", "<|end|>"}, {"bos_token", "<|im_start|>"}};
  config.update(extra);
  folder.write("tokenizer.json", tokenizer.dump());
  folder.write("tokenizer_config.json", config.dump());
}

/// A run over files in its own folder, with the byte tokenizer and the template chatml. The end token is <|im_end|>.
struct SmallRun {
  TempFolder folder;
  config::RunConfig config;
  nlohmann::json info = nlohmann::json::object();

  SmallRun() {
    write_byte_tokenizer(folder);
    config.model.model_name_or_path = folder.path().string();
    config.data.dataset_dir = folder.path().string();
    config.data.template_name = "chatml";
  }
  /// Adds a dataset of one file to the run; `entry` holds its other keys in dataset_info.json.
  void add(const std::string& name, const std::string& file, std::string_view text,
           const nlohmann::json& entry = nlohmann::json::object()) {
    folder.write(file, text);
    info[name] = entry;
    info[name]["file_name"] = file;
    config.data.dataset.push_back(name);
  }
  std::shared_ptr<const pack::Corpus> open() {
    folder.write("dataset_info.json", info.dump());
    return pack::Corpus::open(config, pack::CorpusPart::train);
  }
  EncodedCorpus encode() { return encode_all(*open()); }
  std::string text(const std::vector<std::int32_t>& ids) const { return tokenizer::Tokenizer::load(folder.path())->decode(ids); }
  /// Returns the labelled parts of a sequence as texts.
  std::vector<std::string> learned(const encode::EncodedSequence& sequence) const {
    std::vector<std::string> texts;
    for (const encode::Span& span : sequence.label_spans)
      texts.push_back(text({sequence.ids.begin() + span.begin, sequence.ids.begin() + span.end}));
    return texts;
  }
};

/// Returns the expected LLaMA-Factory lines that `items` contain. LLaMA-Factory learns empty answers, which qft drops
/// (docs/data.md), so that many lines may be missing anywhere. `is_same` compares an item with a line.
template <class Line, class IsSame>
std::vector<Line> without_empty_answers(const std::vector<Line>& lines, const EncodedCorpus& encoded, const IsSame& is_same) {
  std::int64_t dropped = 0;
  for (const pack::RecordCounts& counts : encoded.counts)
    dropped += counts.dropped[static_cast<std::size_t>(encode::DropReason::empty_answer)];
  std::vector<Line> kept;
  for (const Line& line : lines) {
    const bool is_next = kept.size() < encoded.items.size() && is_same(encoded.items[kept.size()], line);
    if (!is_next && dropped > 0)
      --dropped;
    else
      kept.push_back(line);
  }
  EXPECT_EQ(dropped, 0);
  return kept;
}

/// Expects `body` to throw `E` with all of `parts` in its message.
template <class E, class Body>
void expect_error(Body&& body, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const E& error) {
    const std::string message = error.what();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), message.npos) << "'" << part << "' is not in: " << message;
  }
}

}  // namespace qft::test
