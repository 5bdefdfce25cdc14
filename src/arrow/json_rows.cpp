#include "json_rows.h"

#include "qft/core/json_text.h"

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <type_traits>

namespace qft::arrow_table {
namespace {

template <class Array>
class TextWriter final : public ColumnWriter {
 public:
  explicit TextWriter(const arrow::Array& array) : ColumnWriter(array), texts_(static_cast<const Array&>(array)) {}
  void append_value(std::string& out, std::int64_t i) const override { append_json_text(out, texts_.GetView(i)); }

 private:
  const Array& texts_;
};

// As Python writes it: the shortest text that is read back as the same number, with a point.
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
  explicit NumberWriter(const arrow::Array& array) : ColumnWriter(array), numbers_(static_cast<const Array&>(array)) {}
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

class BoolWriter final : public ColumnWriter {
 public:
  explicit BoolWriter(const arrow::Array& array) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t i) const override {
    out += static_cast<const arrow::BooleanArray&>(array_).Value(i) ? "true" : "false";
  }
};

class NullWriter final : public ColumnWriter {
 public:
  explicit NullWriter(const arrow::Array& array) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t) const override { out += "null"; }
};

// Dates, times, decimals.
class OtherTextWriter final : public ColumnWriter {
 public:
  explicit OtherTextWriter(const arrow::Array& array) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t i) const override {
    append_json_text(out, array_.GetScalar(i).ValueOrDie()->ToString());
  }
};

template <class Array>
class ListWriter final : public ColumnWriter {
 public:
  explicit ListWriter(const arrow::Array& array)
      : ColumnWriter(array), lists_(static_cast<const Array&>(array)), values_(lists_.values()), items_(make_writer(*values_)) {}
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
  explicit StructWriter(const arrow::Array& array) : ColumnWriter(array) {
    const auto& fields = static_cast<const arrow::StructArray&>(array);
    for (int f = 0; f < fields.num_fields(); ++f) {
      append_json_text(names_.emplace_back(), fields.type()->field(f)->name());
      arrays_.push_back(fields.field(f));
      writers_.push_back(make_writer(*arrays_.back()));
    }
  }
  void append_value(std::string& out, std::int64_t i) const override {
    out += '{';
    for (std::size_t f = 0; f < names_.size(); ++f) {
      out += (f > 0 ? ", " : "") + names_[f] + ": ";
      writers_[f]->append(out, i);
    }
    out += '}';
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  std::vector<std::unique_ptr<ColumnWriter>> writers_;
};

class DictionaryWriter final : public ColumnWriter {
 public:
  explicit DictionaryWriter(const arrow::Array& array)
      : ColumnWriter(array),
        entries_(static_cast<const arrow::DictionaryArray&>(array)),
        values_(entries_.dictionary()),
        words_(make_writer(*values_)) {}
  void append_value(std::string& out, std::int64_t i) const override { words_->append(out, entries_.GetValueIndex(i)); }

 private:
  const arrow::DictionaryArray& entries_;
  std::shared_ptr<arrow::Array> values_;
  std::unique_ptr<ColumnWriter> words_;
};

class ExtensionWriter final : public ColumnWriter {
 public:
  explicit ExtensionWriter(const arrow::Array& array)
      : ColumnWriter(array),
        storage_(static_cast<const arrow::ExtensionArray&>(array).storage()),
        inner_(make_writer(*storage_)) {}
  void append_value(std::string& out, std::int64_t i) const override { inner_->append(out, i); }

 private:
  std::shared_ptr<arrow::Array> storage_;
  std::unique_ptr<ColumnWriter> inner_;
};

/// What stands for bytes: pictures and sounds, which no text column holds.
class BytesWriter final : public ColumnWriter {
 public:
  explicit BytesWriter(const arrow::Array& array) : ColumnWriter(array) {}
  void append_value(std::string& out, std::int64_t) const override { out += "\"(bytes)\""; }
};

template <class Writer>
std::unique_ptr<ColumnWriter> make(const arrow::Array& array) {
  return std::make_unique<Writer>(array);
}

}  // namespace

void ColumnWriter::append(std::string& out, std::int64_t i) const {
  if (array_.IsNull(i))
    out += "null";
  else
    append_value(out, i);
}

std::unique_ptr<ColumnWriter> make_writer(const arrow::Array& array) {
  using arrow::Type;
  switch (array.type_id()) {
    case Type::NA:
      return make<NullWriter>(array);
    case Type::BOOL:
      return make<BoolWriter>(array);
    case Type::INT8:
      return make<NumberWriter<arrow::Int8Array>>(array);
    case Type::INT16:
      return make<NumberWriter<arrow::Int16Array>>(array);
    case Type::INT32:
      return make<NumberWriter<arrow::Int32Array>>(array);
    case Type::INT64:
      return make<NumberWriter<arrow::Int64Array>>(array);
    case Type::UINT8:
      return make<NumberWriter<arrow::UInt8Array>>(array);
    case Type::UINT16:
      return make<NumberWriter<arrow::UInt16Array>>(array);
    case Type::UINT32:
      return make<NumberWriter<arrow::UInt32Array>>(array);
    case Type::UINT64:
      return make<NumberWriter<arrow::UInt64Array>>(array);
    case Type::FLOAT:
      return make<NumberWriter<arrow::FloatArray>>(array);
    case Type::DOUBLE:
      return make<NumberWriter<arrow::DoubleArray>>(array);
    case Type::STRING:
      return make<TextWriter<arrow::StringArray>>(array);
    case Type::LARGE_STRING:
      return make<TextWriter<arrow::LargeStringArray>>(array);
    case Type::STRING_VIEW:
      return make<TextWriter<arrow::StringViewArray>>(array);
    case Type::LIST:
    case Type::MAP:
      return make<ListWriter<arrow::ListArray>>(array);
    case Type::LARGE_LIST:
      return make<ListWriter<arrow::LargeListArray>>(array);
    case Type::FIXED_SIZE_LIST:
      return make<ListWriter<arrow::FixedSizeListArray>>(array);
    case Type::STRUCT:
      return make<StructWriter>(array);
    case Type::DICTIONARY:
      return make<DictionaryWriter>(array);
    case Type::EXTENSION:
      return make<ExtensionWriter>(array);
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY:
      return make<BytesWriter>(array);
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIMESTAMP:
    case Type::TIME32:
    case Type::TIME64:
    case Type::DURATION:
    case Type::HALF_FLOAT:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
      return make<OtherTextWriter>(array);
    default:
      throw std::runtime_error("a column has the type " + array.type()->ToString() + ", which has no form in JSON");
  }
}

RowWriter::RowWriter(std::shared_ptr<arrow::RecordBatch> batch) : batch_(std::move(batch)) {
  for (int c = 0; c < batch_->num_columns(); ++c) {
    append_json_text(names_.emplace_back(), batch_->column_name(c));
    names_.back() += ": ";
    arrays_.push_back(batch_->column(c));
    columns_.push_back(make_writer(*arrays_.back()));
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
