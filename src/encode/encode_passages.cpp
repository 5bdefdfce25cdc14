// Encodes anchors with their documents (embedding models), and queries with each of their documents (rerankers).
#include "qft/core/error.h"
#include "qft/encode/encoder.h"

#include <algorithm>

namespace qft::encode {
namespace {

using Ids = std::vector<std::int32_t>;

/// Cuts `ids` to `most` tokens in front of the template's end, as Qwen's own code does: the model reads its result at the last
/// token, so the end must stay. `without_text`: the ids for an empty text; what both have at the end is the template's end.
/// Returns whether it cut.
bool cut_before_end(const Ids& without_text, std::int64_t most, Ids& ids) {
  const std::int64_t over = std::ssize(ids) - most;
  if (over <= 0) return false;
  const auto [in_ids, in_other] = std::mismatch(ids.rbegin(), ids.rend(), without_text.rbegin(), without_text.rend());
  const auto end = in_ids - ids.rbegin();
  if (end >= most) fail("cutoff_len {} is too short: the template's end alone has {} tokens", most, end);
  ids.erase(ids.end() - end - over, ids.end() - end);
  return true;
}

Conversation question_of(const std::string& text, const std::string& system, bool has_system) {
  Conversation question;
  question.prompt.push_back({Role::user, text});
  question.system = system;
  question.has_system = has_system;
  return question;
}

/// Replaces {{instruction}}, {{query}} and {{document}}, once each.
std::string fill(const std::string& form, const std::string& instruction, const std::string& query, const std::string& document) {
  const std::pair<std::string_view, const std::string*> parts[] = {
      {"{{instruction}}", &instruction}, {"{{query}}", &query}, {"{{document}}", &document}};
  std::string text;
  for (std::size_t at = 0; at < form.size();) {
    const auto part = std::ranges::find_if(parts, [&](const auto& p) { return form.compare(at, p.first.size(), p.first) == 0; });
    if (part == std::end(parts)) {
      text += form[at++];
    } else {
      text += *part->second;
      at += part->first.size();
    }
  }
  return text;
}

}  // namespace

Encoded Encoder::encode_texts(const Conversation& conversation) const {
  Encoded encoded;
  const auto add = [&](const std::string& text, const std::string& system, bool has_system) {
    Ids& ids = encoded.sequences.emplace_back().ids;
    ids = template_.render_prompt(question_of(text, system, has_system));
    if (std::ssize(ids) > options_.cutoff_len)
      encoded.truncated |= cut_before_end(template_.render_prompt(question_of("", system, has_system)), options_.cutoff_len, ids);
  };
  add(options_.query_prompt + conversation.prompt.front().text, conversation.system, conversation.has_system);
  for (const Passage& passage : conversation.passages)
    add(options_.document_prompt + passage.text, passage.system, passage.has_system);
  return encoded;
}

Encoded Encoder::encode_ranking(const Conversation& conversation) const {
  const std::string& query = conversation.prompt.front().text;
  const TemplateSpec& spec = template_.spec();
  Encoded encoded;
  for (const Passage& passage : conversation.passages) {
    const bool own = passage.has_system;
    const std::string& instruction = own ? passage.system : conversation.system;
    const auto render = [&](const std::string& document) {
      if (!spec.ranking.empty())
        return template_.render_prompt(
            question_of(fill(spec.ranking, instruction.empty() ? spec.instruction : instruction, query, document), "", false));
      Exchange answer =
          template_.encode_answer(question_of(query, instruction, own || conversation.has_system), {Role::assistant, document});
      answer.source.insert(answer.source.end(), answer.target.begin(), answer.target.end());
      if (spec.efficient_eos) answer.source.push_back(*template_.eos_id());
      return std::move(answer.source);
    };
    Ids& ids = encoded.sequences.emplace_back().ids;
    ids = render(passage.text);
    if (std::ssize(ids) <= options_.cutoff_len) continue;
    const Ids without_document = render("");
    encoded.truncated |= cut_before_end(without_document, options_.cutoff_len, ids);
    if (options_.cutoff_len <= std::ssize(without_document)) ids.clear();  // a score of no document: the record is left out
  }
  return encoded;
}

}  // namespace qft::encode
