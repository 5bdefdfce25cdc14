// qft-ckpt add-tokens MODEL --tokens A,B --special C --output DIR: adds tokens to a model and its tokenizer.
#include "qft/model/add_tokens.h"

#include "qft/io/file.h"

#include <algorithm>
#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::ckpt_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("add-tokens",
                "Writes a copy of a model with more tokens in its tokenizer. Their embedding rows start as the mean of the other "
                "rows plus noise. Train them with finetuning_type: full, or with LoRA and additional_target: "
                "embed_tokens,lm_head.",
                "MODEL", 1);
  spec.options.add_options()("tokens", po::value<std::string>(), "words that become one token each, separated by commas")(
      "special", po::value<std::string>(), "the same for special tokens, which answers do not show")(
      "output,o", po::value<std::string>(), "the directory to write");
  return spec;
}

std::vector<std::string> words_of(const config::CommandLine& line, const char* option) {
  std::vector<std::string> words;
  if (line.options.count(option) == 0) return words;
  const std::string text = line.options[option].as<std::string>();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void print(const model::AddedTokens& added, const std::string& path) {
  std::cout << fmt::format("{}: {} new tokens, ids {}\n", path, added.ids.size(), fmt::join(added.ids, ", "));
  if (!added.already_known.empty())
    std::cout << fmt::format("the tokenizer already had {}\n", fmt::join(added.already_known, ", "));
  std::cout << (added.rows == added.rows_before
                    ? fmt::format("the embeddings keep their {} rows, which have room for the new tokens\n", added.rows)
                    : fmt::format("the embeddings grew from {} to {} rows\n", added.rows_before, added.rows));
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt add-tokens: give one model instead of {}", line.words.size());
  model::AddTokensRequest request;
  request.base = line.words[0];
  io::require_directory(request.base, "model");
  request.target = output_of(line, "add-tokens", "the directory to write the model with more tokens to");
  request.tokens = words_of(line, "tokens");
  request.special = words_of(line, "special");
  const model::AddedTokens added = model::add_tokens(io::posix_storage(), request);
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", request.target.string()},
                                        {"ids", added.ids},
                                        {"had", added.already_known},
                                        {"rows_before", added.rows_before},
                                        {"rows", added.rows}}
              << "\n";
  else
    print(added, request.target.string());
  return kExitOk;
}

}  // namespace

const Command kAddTokens{"add-tokens", "adds tokens to a model and its tokenizer", spec, run};

}  // namespace qft::ckpt_tool
