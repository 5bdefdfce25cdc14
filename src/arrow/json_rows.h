// The rows of a record batch as JSON objects.
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
  /// Appends value `i` of the array, null included.
  void append(std::string& out, std::int64_t i) const;

 protected:
  explicit ColumnWriter(const arrow::Array& array) : array_(array) {}
  virtual void append_value(std::string& out, std::int64_t i) const = 0;
  const arrow::Array& array_;
};

/// Where a value stands in a table.
struct Place {
  std::string column;        // "messages.content"
  bool sparse = false;       // in the description of tools or calls: members of objects that are null are left out
  bool* left_out = nullptr;  // set where one was
};

/// For any type: dates, times and decimals are texts; bytes are a text where they are UTF-8. What has no form in JSON becomes
/// unreadable_value() (qft/core/unreadable.h), which names column and type. The array must outlive it.
std::unique_ptr<ColumnWriter> make_writer(const arrow::Array& array, const Place& place);

/// The columns of a batch by their names.
class RowWriter {
 public:
  explicit RowWriter(std::shared_ptr<arrow::RecordBatch> batch);
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;
  /// Row `i` as {"name": value, ...}.
  void write(std::string& out, std::int64_t i) const;
  /// Whether a row had null members in the description of tools or calls, which were left out.
  bool has_left_out() const { return left_out_; }

 private:
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::string> names_;  // as JSON, with the colon
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  std::vector<std::unique_ptr<ColumnWriter>> columns_;
  bool left_out_ = false;
};

}  // namespace qft::arrow_table
