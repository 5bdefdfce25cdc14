#include "qft/encode/record_texts.h"

#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;
using Body = std::function<void(std::string_view, std::string_view)>;

void each_text(std::string_view column, const dom::element& value, const Body& body) {
  if (dom::array list; value.get(list) == simdjson::SUCCESS) {
    for (const dom::element item : list) each_text(column, item, body);
  } else if (dom::object object; value.get(object) == simdjson::SUCCESS) {
    for (const auto& field : object) each_text(column, field.value, body);
  } else if (is_text(value)) {
    body(column, std::string_view(value));
  }
}

}  // namespace

void RecordTexts::each(const RecordText& record, const Body& body) {
  if (is_text_) return body("text", record.text);
  const ColumnNames& c = spec_.columns;
  const bool is_alpaca = spec_.formatting == Formatting::alpaca;
  for (const auto& field : converter_.parse(record.text)) {
    const auto is_one_of = [&](std::initializer_list<const std::string*> columns) {
      for (const std::string* column : columns)
        if (*column == field.key) return true;
      return false;
    };
    const bool is_read = (is_alpaca ? is_one_of({&c.prompt, &c.query, &c.history}) : is_one_of({&c.messages})) ||
                         (is_alpaca && !spec_.ranking && is_one_of({&c.response})) ||
                         (spec_.ranking && is_one_of({&c.chosen, &c.rejected})) || is_one_of({&c.system, &c.tools});
    if (is_read) each_text(field.key, field.value, body);
  }
}

}  // namespace qft::encode
