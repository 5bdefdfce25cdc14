#include "json_rows.h"

#include "qft/core/json_text.h"

#include <algorithm>
#include <array>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>
#include <charconv>
#include <cmath>
#include <string_view>
#include <type_traits>

namespace qft::arrow_table {
namespace {

/// Under these names, at any depth, null members are not in the data: Arrow's one type for all rows gives every object every key.
constexpr std::array<std::string_view, 6> kSparse = {"tools",    "tool_calls", "function_call",
                                                     "function", "functions",  "arguments"};

Place inside(const Place& place, std::string_view name) {
  Place inner = place;
  inner.column.append(place.column.empty() ? "" : ".").append(name);
  inner.sparse |= std::find(kSparse.begin(), kSparse.end(), name) != kSparse.end();
  return inner;
}

void append_unreadable(std::string& out, const Place& place, std::string_view what, const arrow::Array& array) {
  std::string text = "the column '" + place.column + "' holds ";
  text.append(what).append(" (type ").append(array.type()->ToString()).append(")");
  append_json_text(out, unreadable_value(text));
}

/// Writes texts, and bytes that are valid UTF-8.
template <class Array>
class TextWriter final : public ColumnWriter {
 public:
  TextWriter(const arrow::Array& array, const Place& place)
      : ColumnWriter(array), texts_(static_cast<const Array&>(array)), place_(place) {}
  void append_value(std::string& out, std::int64_t i) const override {
    const std::string_view text = texts_.GetView(i);
    if (arrow::util::ValidateUTF8(reinterpret_cast<const std::uint8_t*>(text.data()), static_cast<std::int64_t>(text.size())))
      append_json_text(out, text);
    else
      append_unreadable(out, place_, "bytes that are not UTF-8", texts_);
  }

 private:
  const Array& texts_;
  Place place_;
};

// Like Python: the shortest text that reads back as the same number, with a point.
void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
  if (std::string_view(text, end).find_first_of(".e") == std::string_view::npos) out += ".0";
}

template <class Array>
class NumberWriter final : public ColumnWriter {
 public:
  NumberWriter(const arrow::Array& array, const Place&) : ColumnWriter(array), numbers_(static_cast<const Array&>(array)) {}
  void append_value(std::string& out, std::int64_t i) const override {
    const auto value = numbers_.Value(i);
    if constexpr (std::is_floating_point_v<decltype(value)>)
      append_number(out, static_cast<double>(value));
    else
      out += std::to_string(value);
  }

 private:
  const Array& numbers_;
};

class HalfWriter final : public ColumnWriter {
 public:
  HalfWriter(const arrow::Array& array, const Place&) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t i) const override {
    const auto bits = static_cast<const arrow::HalfFloatArray&>(array_).Value(i);
    append_number(out, static_cast<double>(arrow::util::Float16::FromBits(bits).ToFloat()));
  }
};

class BoolWriter final : public ColumnWriter {
 public:
  BoolWriter(const arrow::Array& array, const Place&) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t i) const override {
    out += static_cast<const arrow::BooleanArray&>(array_).Value(i) ? "true" : "false";
  }
};

class NullWriter final : public ColumnWriter {
 public:
  NullWriter(const arrow::Array& array, const Place&) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t) const override { out += "null"; }
};

// Writes dates, times and decimals.
class OtherTextWriter final : public ColumnWriter {
 public:
  OtherTextWriter(const arrow::Array& array, const Place&) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t i) const override {
    append_json_text(out, array_.GetScalar(i).ValueOrDie()->ToString());
  }
};

template <class Array>
class ListWriter final : public ColumnWriter {
 public:
  ListWriter(const arrow::Array& array, const Place& place)
      : ColumnWriter(array),
        lists_(static_cast<const Array&>(array)),
        values_(lists_.values()),
        items_(make_writer(*values_, place)) {}
  void append_value(std::string& out, std::int64_t i) const override {
    out += '[';
    const std::int64_t begin = lists_.value_offset(i), end = begin + lists_.value_length(i);
    for (std::int64_t k = begin; k < end; ++k) {
      if (k > begin) out += ", ";
      items_->append(out, k);
    }
    out += ']';
  }

 private:
  const Array& lists_;
  std::shared_ptr<arrow::Array> values_;
  std::unique_ptr<ColumnWriter> items_;
};

class StructWriter final : public ColumnWriter {
 public:
  StructWriter(const arrow::Array& array, const Place& place) : ColumnWriter(array), place_(place) {
    const auto& fields = static_cast<const arrow::StructArray&>(array);
    for (int f = 0; f < fields.num_fields(); ++f) {
      const std::string& name = fields.type()->field(f)->name();
      append_json_text(names_.emplace_back(), name);
      arrays_.push_back(fields.field(f));
      writers_.push_back(make_writer(*arrays_.back(), inside(place, name)));
    }
  }
  void append_value(std::string& out, std::int64_t i) const override {
    out += '{';
    const char* separator = "";
    for (std::size_t f = 0; f < names_.size(); ++f) {
      if (place_.sparse && arrays_[f]->IsNull(i)) {
        *place_.left_out = true;
        continue;
      }
      out.append(separator).append(names_[f]).append(": ");
      writers_[f]->append(out, i);
      separator = ", ";
    }
    out += '}';
  }

 private:
  Place place_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  std::vector<std::unique_ptr<ColumnWriter>> writers_;
};

/// True if values of this type can be the keys of a JSON object, written as texts.
bool is_key(const arrow::DataType& type) {
  const auto id = type.id();
  return arrow::is_base_binary_like(id) || arrow::is_binary_view_like(id) || arrow::is_integer(id) || arrow::is_floating(id) ||
         arrow::is_temporal(id) || id == arrow::Type::BOOL || id == arrow::Type::FIXED_SIZE_BINARY;
}

class MapWriter final : public ColumnWriter {
 public:
  MapWriter(const arrow::Array& array, const Place& place)
      : ColumnWriter(array),
        maps_(static_cast<const arrow::MapArray&>(array)),
        names_(make_writer(*maps_.keys(), inside(place, "key"))),
        values_(make_writer(*maps_.items(), inside(place, "value"))) {}
  void append_value(std::string& out, std::int64_t i) const override {
    out += '{';
    const std::int64_t begin = maps_.value_offset(i), end = begin + maps_.value_length(i);
    for (std::int64_t k = begin; k < end; ++k) {
      if (k > begin) out += ", ";
      append_name(out, k);
      out += ": ";
      values_->append(out, k);
    }
    out += '}';
  }

 private:
  void append_name(std::string& out, std::int64_t k) const {
    std::string name;
    names_->append(name, k);
    if (name.starts_with('"'))
      out += name;
    else
      append_json_text(out, name);
  }

  const arrow::MapArray& maps_;
  std::unique_ptr<ColumnWriter> names_, values_;
};

class DictionaryWriter final : public ColumnWriter {
 public:
  DictionaryWriter(const arrow::Array& array, const Place& place)
      : ColumnWriter(array),
        entries_(static_cast<const arrow::DictionaryArray&>(array)),
        values_(entries_.dictionary()),
        words_(make_writer(*values_, place)) {}
  void append_value(std::string& out, std::int64_t i) const override { words_->append(out, entries_.GetValueIndex(i)); }

 private:
  const arrow::DictionaryArray& entries_;
  std::shared_ptr<arrow::Array> values_;
  std::unique_ptr<ColumnWriter> words_;
};

class ExtensionWriter final : public ColumnWriter {
 public:
  ExtensionWriter(const arrow::Array& array, const Place& place)
      : ColumnWriter(array),
        storage_(static_cast<const arrow::ExtensionArray&>(array).storage()),
        inner_(make_writer(*storage_, place)) {}
  void append_value(std::string& out, std::int64_t i) const override { inner_->append(out, i); }

 private:
  std::shared_ptr<arrow::Array> storage_;
  std::unique_ptr<ColumnWriter> inner_;
};

/// For types without a JSON form.
class UnreadableWriter final : public ColumnWriter {
 public:
  UnreadableWriter(const arrow::Array& array, const Place& place) : ColumnWriter(array), place_(place) {}
  void append_value(std::string& out, std::int64_t) const override {
    append_unreadable(out, place_, "values that have no form in JSON", array_);
  }

 private:
  Place place_;
};

template <class Writer>
std::unique_ptr<ColumnWriter> make(const arrow::Array& array, const Place& place) {
  return std::make_unique<Writer>(array, place);
}

/// Returns the writer of a map, whose keys may have no form as a JSON key.
std::unique_ptr<ColumnWriter> make_map(const arrow::Array& array, const Place& place) {
  return is_key(*static_cast<const arrow::MapArray&>(array).keys()->type()) ? make<MapWriter>(array, place)
                                                                            : make<UnreadableWriter>(array, place);
}

using arrow::Type;

struct WriterRow {
  Type::type type;
  std::unique_ptr<ColumnWriter> (*make)(const arrow::Array& array, const Place& place);
};
/// The types with a form in JSON, beside decimals.
constexpr WriterRow kWriters[] = {
    {Type::NA, make<NullWriter>},
    {Type::BOOL, make<BoolWriter>},
    {Type::INT8, make<NumberWriter<arrow::Int8Array>>},
    {Type::INT16, make<NumberWriter<arrow::Int16Array>>},
    {Type::INT32, make<NumberWriter<arrow::Int32Array>>},
    {Type::INT64, make<NumberWriter<arrow::Int64Array>>},
    {Type::UINT8, make<NumberWriter<arrow::UInt8Array>>},
    {Type::UINT16, make<NumberWriter<arrow::UInt16Array>>},
    {Type::UINT32, make<NumberWriter<arrow::UInt32Array>>},
    {Type::UINT64, make<NumberWriter<arrow::UInt64Array>>},
    {Type::FLOAT, make<NumberWriter<arrow::FloatArray>>},
    {Type::DOUBLE, make<NumberWriter<arrow::DoubleArray>>},
    {Type::STRING, make<TextWriter<arrow::StringArray>>},
    {Type::LARGE_STRING, make<TextWriter<arrow::LargeStringArray>>},
    {Type::STRING_VIEW, make<TextWriter<arrow::StringViewArray>>},
    {Type::MAP, make_map},
    {Type::LIST, make<ListWriter<arrow::ListArray>>},
    {Type::LARGE_LIST, make<ListWriter<arrow::LargeListArray>>},
    {Type::FIXED_SIZE_LIST, make<ListWriter<arrow::FixedSizeListArray>>},
    {Type::STRUCT, make<StructWriter>},
    {Type::DICTIONARY, make<DictionaryWriter>},
    {Type::EXTENSION, make<ExtensionWriter>},
    {Type::BINARY, make<TextWriter<arrow::BinaryArray>>},
    {Type::LARGE_BINARY, make<TextWriter<arrow::LargeBinaryArray>>},
    {Type::BINARY_VIEW, make<TextWriter<arrow::BinaryViewArray>>},
    {Type::FIXED_SIZE_BINARY, make<TextWriter<arrow::FixedSizeBinaryArray>>},
    {Type::HALF_FLOAT, make<HalfWriter>},
    {Type::DATE32, make<OtherTextWriter>},
    {Type::DATE64, make<OtherTextWriter>},
    {Type::TIMESTAMP, make<OtherTextWriter>},
    {Type::TIME32, make<OtherTextWriter>},
    {Type::TIME64, make<OtherTextWriter>},
    {Type::DURATION, make<OtherTextWriter>},
};

}  // namespace

void ColumnWriter::append(std::string& out, std::int64_t i) const {
  if (array_.IsNull(i))
    out += "null";
  else
    append_value(out, i);
}

std::unique_ptr<ColumnWriter> make_writer(const arrow::Array& array, const Place& place) {
  const auto row = std::ranges::find(kWriters, array.type_id(), &WriterRow::type);
  if (row != std::end(kWriters)) return row->make(array, place);
  return arrow::is_decimal(array.type_id()) ? make<OtherTextWriter>(array, place) : make<UnreadableWriter>(array, place);
}

RowWriter::RowWriter(std::shared_ptr<arrow::RecordBatch> batch) : batch_(std::move(batch)) {
  for (int c = 0; c < batch_->num_columns(); ++c) {
    append_json_text(names_.emplace_back(), batch_->column_name(c));
    names_.back() += ": ";
    arrays_.push_back(batch_->column(c));
    columns_.push_back(make_writer(*arrays_.back(), inside({{}, false, &left_out_}, batch_->column_name(c))));
  }
}

void RowWriter::write(std::string& out, std::int64_t i) const {
  out += '{';
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (c > 0) out += ", ";
    out += names_[c];
    columns_[c]->append(out, i);
  }
  out += '}';
}

}  // namespace qft::arrow_table
