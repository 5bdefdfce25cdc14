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

/// For any type that has a JSON form; dates, times and decimals are texts. The array must outlive it. Throws std::runtime_error
/// naming a type that has none.
std::unique_ptr<ColumnWriter> make_writer(const arrow::Array& array);

/// The columns of a batch by their names.
class RowWriter {
 public:
  explicit RowWriter(std::shared_ptr<arrow::RecordBatch> batch);
  /// Row `i` as {"name": value, ...}.
  void write(std::string& out, std::int64_t i) const;

 private:
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::string> names_;  // as JSON, with the colon
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  std::vector<std::unique_ptr<ColumnWriter>> columns_;
};

}  // namespace qft::arrow_table
