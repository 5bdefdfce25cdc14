// Writes the rows of a record batch as JSON objects.
#pragma once

#include <arrow/api.h>
#include <memory>
#include <string>
#include <vector>

namespace qft::arrow_table {

/// Writes the values of one column.
class ColumnWriter {
 public:
  virtual ~ColumnWriter() = default;
  /// Appends value `i` of the array, which may be null.
  void append(std::string& out, std::int64_t i) const;

 protected:
  explicit ColumnWriter(const arrow::Array& array) : array_(array) {}
  virtual void append_value(std::string& out, std::int64_t i) const = 0;
  const arrow::Array& array_;
};

/// A value's position in a table.
struct Place {
  std::string column;        // "messages.content"
  bool sparse = false;       // inside the description of tools or calls: null members of objects are omitted
  bool* left_out = nullptr;  // set to true when a member is omitted
};

/// Makes a writer for any type: dates, times and decimals become texts, bytes become a text if they are UTF-8. A value without a
/// JSON form becomes unreadable_value() (qft/core/json_text.h), which names column and type. The array must outlive the writer.
std::unique_ptr<ColumnWriter> make_writer(const arrow::Array& array, const Place& place);

/// Writes the columns of a batch by name.
class RowWriter {
 public:
  explicit RowWriter(std::shared_ptr<arrow::RecordBatch> batch);
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;
  /// Appends row `i` as {"name": value, ...}.
  void write(std::string& out, std::int64_t i) const;
  /// True if null members in the description of tools or calls were omitted.
  bool has_left_out() const { return left_out_; }

 private:
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::string> names_;  // as JSON, with the colon
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  std::vector<std::unique_ptr<ColumnWriter>> columns_;
  bool left_out_ = false;
};

}  // namespace qft::arrow_table
