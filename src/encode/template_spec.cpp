#include "qft/encode/template_spec.h"

#include "qft/config/yaml.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tool_format.h"
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace qft::encode {
namespace {

using Where = std::string;

Where where_of(const std::string& origin, const YAML::Node& node, std::string_view key) {
  return fmt::format("{}:{}: {}", origin, node.Mark().line + 1, key);
}

std::string text_of(const YAML::Node& node, const Where& where) {
  if (!node.IsScalar()) fail_config("{}: expected a text", where);
  return node.Scalar();
}

bool bool_of(const YAML::Node& node, const Where& where) {
  bool value = false;
  if (!YAML::convert<bool>::decode(node, value)) fail_config("{}: expected true or false", where);
  return value;
}

std::vector<std::string> texts_of(const YAML::Node& node, const Where& where) {
  if (!node.IsSequence()) fail_config("{}: expected a list of texts", where);
  std::vector<std::string> texts;
  for (const YAML::Node& item : node) texts.push_back(text_of(item, where));
  return texts;
}

TurnFormat turn_of(const YAML::Node& node, const Where& where) {
  TurnFormat format;
  for (const std::string& text : node.IsSequence() ? texts_of(node, where) : std::vector{text_of(node, where)}) {
    TurnFormat pieces = parse_turn(text, where);
    format.insert(format.end(), std::make_move_iterator(pieces.begin()), std::make_move_iterator(pieces.end()));
  }
  return format;
}

void words_of(const YAML::Node& node, const Where& where, std::string& open, std::string& close) {
  const std::vector<std::string> words = texts_of(node, where);
  if (words.size() != 2 || words[0].empty() || words[1].empty())
    fail_config("{}: expected two texts, the opening and the closing one", where);
  open = words[0];
  close = words[1];
}

using Reader = std::function<void(TemplateSpec&, const YAML::Node&, const Where&)>;

// The keys of a template file. Any other key is an error.
const std::map<std::string_view, Reader>& readers() {
  auto turn = [](TurnFormat TemplateSpec::* member) {
    return [member](TemplateSpec& t, const YAML::Node& n, const Where& w) { t.*member = turn_of(n, w); };
  };
  auto text = [](std::string TemplateSpec::* member) {
    return [member](TemplateSpec& t, const YAML::Node& n, const Where& w) { t.*member = text_of(n, w); };
  };
  auto flag = [](bool TemplateSpec::* member) {
    return [member](TemplateSpec& t, const YAML::Node& n, const Where& w) { t.*member = bool_of(n, w); };
  };
  static const std::map<std::string_view, Reader> table{
      {"name", text(&TemplateSpec::name)},
      {"prefix", turn(&TemplateSpec::prefix)},
      {"system", turn(&TemplateSpec::system)},
      {"user", turn(&TemplateSpec::user)},
      {"assistant", turn(&TemplateSpec::assistant)},
      {"function", turn(&TemplateSpec::function)},
      {"observation", turn(&TemplateSpec::observation)},
      {"tool_format", text(&TemplateSpec::tool_format)},
      {"default_system", text(&TemplateSpec::default_system)},
      {"stop_words", [](TemplateSpec& t, const YAML::Node& n, const Where& w) { t.stop_words = texts_of(n, w); }},
      {"thought_words",
       [](TemplateSpec& t, const YAML::Node& n, const Where& w) { words_of(n, w, t.thought_open, t.thought_close); }},
      {"tool_call_words",
       [](TemplateSpec& t, const YAML::Node& n, const Where& w) { words_of(n, w, t.call_open, t.call_close); }},
      {"ranking", text(&TemplateSpec::ranking)},
      {"instruction", text(&TemplateSpec::instruction)},
      {"pack_only", text(&TemplateSpec::pack_only)},
      {"document_end", text(&TemplateSpec::document_end)},
      {"reasoning", flag(&TemplateSpec::reasoning)},
      {"replace_eos", flag(&TemplateSpec::replace_eos)},
      {"efficient_eos", flag(&TemplateSpec::efficient_eos)},
      {"system_in_user", flag(&TemplateSpec::system_in_user)},
  };
  return table;
}

bool has_content(const TurnFormat& format) {
  return std::any_of(format.begin(), format.end(), [](const TurnPiece& p) { return p.has_content; });
}

TurnFormat default_assistant(const TemplateSpec& spec) {
  return parse_turn(spec.efficient_eos ? "{{content}}" : "{{content}}{{eos_token}}", "assistant");
}

void fill_defaults(TemplateSpec& spec) {
  const TurnFormat bare = parse_turn("{{content}}", "user");
  if (spec.system.empty()) spec.system = bare;
  if (spec.user.empty()) spec.user = bare;
  if (spec.assistant.empty()) spec.assistant = default_assistant(spec);
  if (spec.function.empty()) spec.function = spec.assistant;
  if (spec.observation.empty()) spec.observation = spec.user;
}

void check(const TemplateSpec& spec) {
  const std::pair<std::string_view, const TurnFormat*> turns[] = {{"system", &spec.system},
                                                                  {"user", &spec.user},
                                                                  {"assistant", &spec.assistant},
                                                                  {"function", &spec.function},
                                                                  {"observation", &spec.observation}};
  for (const auto& [key, format] : turns)
    if (!has_content(*format)) fail_config("{}: {} has no {{{{content}}}}", spec.origin, key);
  if (has_content(spec.prefix))
    fail_config("{}: prefix comes before any message, so it cannot have {{{{content}}}}", spec.origin);
  if (spec.replace_eos && spec.stop_words.empty())
    fail_config("{}: replace_eos takes the first of stop_words as the end token, but there are none", spec.origin);
  if (spec.system_in_user && (spec.system.size() != 1 || spec.system[0].kind != TurnPiece::Kind::text))
    fail_config("{}: with system_in_user, system must be one text without {{{{bos_token}}}} and {{{{eos_token}}}}", spec.origin);
  for (const std::string_view part : {"{{instruction}}", "{{query}}", "{{document}}"})
    if (!spec.ranking.empty() && spec.ranking.find(part) == std::string::npos)
      fail_config("{}: ranking has no {}", spec.origin, part);
  find_tool_format(spec.tool_format);
}

nlohmann::json to_json(const TurnFormat& format) {
  nlohmann::json pieces = nlohmann::json::array();
  for (const TurnPiece& p : format) pieces.push_back({static_cast<int>(p.kind), p.before, p.has_content, p.after});
  return pieces;
}

void add_special_tokens(std::string_view text, std::set<std::string>& tokens) {
  for (std::size_t open = text.find("<|"); open != text.npos; open = text.find("<|", open + 2)) {
    const std::size_t close = text.find("|>", open + 2);
    if (close == text.npos) return;
    const std::string_view token = text.substr(open, close + 2 - open);
    if (token.find_first_of(" \n", 0) == token.npos) tokens.emplace(token);
  }
}

}  // namespace

TurnFormat parse_turn(std::string_view text, const std::string& where) {
  TurnFormat format;
  auto current = [&]() -> TurnPiece& {
    if (format.empty() || format.back().kind != TurnPiece::Kind::text) format.emplace_back();
    return format.back();
  };
  while (!text.empty()) {
    const std::size_t open = text.find("{{");
    const std::size_t close = open == text.npos ? text.npos : text.find("}}", open);
    const std::string_view plain = close == text.npos ? text : text.substr(0, open);
    if (!plain.empty()) {
      TurnPiece& piece = current();
      (piece.has_content ? piece.after : piece.before) += plain;
    }
    if (close == text.npos) break;
    const std::string_view word = text.substr(open + 2, close - open - 2);
    text.remove_prefix(close + 2);
    if (word == "content") {
      TurnPiece& piece = current();
      if (piece.has_content) fail_config("{}: {{{{content}}}} occurs twice in one text", where);
      piece.has_content = true;
    } else if (word == "bos_token" || word == "eos_token") {
      format.push_back({word == "bos_token" ? TurnPiece::Kind::bos : TurnPiece::Kind::eos, {}, false, {}});
    } else {
      fail_config("{}: unknown placeholder {{{{{}}}}}; there are {{{{content}}}}, {{{{bos_token}}}} and {{{{eos_token}}}}", where,
                  word);
    }
  }
  return format;
}

TemplateSpec parse_template(std::string_view yaml, const std::string& origin) {
  TemplateSpec spec;
  spec.origin = origin;
  try {
    const std::string text(yaml);
    config::require_plain_yaml(text, origin);
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) fail_config("{}: a template file must map keys to texts", origin);
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      const Where where = where_of(origin, entry.first, key);
      const auto reader = readers().find(key);
      if (reader == readers().end()) {
        std::string known;
        for (const auto& [name, unused] : readers()) known += (known.empty() ? "" : ", ") + std::string(name);
        fail_config("{}: unknown key; a template has {}", where, known);
      }
      reader->second(spec, entry.second, where);
    }
  } catch (const YAML::Exception& e) {
    fail_config("{}:{}: {}", origin, e.mark.line + 1, e.msg);
  }
  if (spec.name.empty()) fail_config("{}: a template needs a name", origin);
  fill_defaults(spec);
  check(spec);
  return spec;
}

void set_tool_format(TemplateSpec& spec, const std::string& name) {
  spec.tool_format = find_tool_format(name).name;
  spec.function = default_assistant(spec);
}

std::string TemplateSpec::hash() const {
  nlohmann::json all = {to_json(prefix),
                        to_json(system),
                        to_json(user),
                        to_json(assistant),
                        to_json(function),
                        to_json(observation),
                        find_tool_format(tool_format).description(),
                        default_system,
                        stop_words,
                        thought_open,
                        thought_close,
                        call_open,
                        call_close,
                        document_end,
                        reasoning,
                        replace_eos,
                        efficient_eos,
                        system_in_user};
  if (!ranking.empty()) all.insert(all.end(), {ranking, instruction});
  return hash_hex(all.dump());
}

std::vector<std::string> TemplateSpec::special_tokens() const {
  std::set<std::string> tokens(stop_words.begin(), stop_words.end());
  for (const TurnFormat* format : {&prefix, &system, &user, &assistant, &function, &observation})
    for (const TurnPiece& piece : *format) {
      add_special_tokens(piece.before, tokens);
      add_special_tokens(piece.after, tokens);
    }
  return {tokens.begin(), tokens.end()};
}

}  // namespace qft::encode
