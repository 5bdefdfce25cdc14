// Reads Parquet files by row groups, and Arrow IPC files and streams (the caches of Hugging Face datasets) by record batches.
#include "qft/core/file_ending.h"
#include "qft/io/table_plugin.h"

#include <algorithm>
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/utf8.h>
#include <exception>
#include <memory>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "json_rows.h"

namespace qft::arrow_table {
namespace {

constexpr std::int64_t kBatchRows = 1024;  // rows in Arrow's form at a time

template <class T>
T value_of(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}
void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

void send(const std::shared_ptr<arrow::RecordBatch>& batch, const io::TableSink& sink) {
  const RowWriter writer(batch);
  std::string row;
  for (std::int64_t i = 0; i < batch->num_rows(); ++i) {
    row.clear();
    writer.write(row, i);
    sink.row(sink.context, row.data(), row.size());
  }
  if (writer.has_left_out()) sink.left_out(sink.context);
}

class Table {
 public:
  virtual ~Table() = default;
  virtual std::uint64_t groups() const = 0;
  virtual std::int64_t rows(std::uint64_t group) const = 0;
  virtual void read(std::uint64_t group, const io::TableSink& sink) const = 0;
};

class ParquetTable final : public Table {
 public:
  explicit ParquetTable(std::shared_ptr<arrow::io::MemoryMappedFile> file)
      : file_(std::move(file)), facts_(parquet::ReadMetaData(file_)) {}
  std::uint64_t groups() const override { return static_cast<std::uint64_t>(facts_->num_row_groups()); }
  std::int64_t rows(std::uint64_t group) const override { return facts_->RowGroup(static_cast<int>(group))->num_rows(); }

  // A reader belongs to one thread, so each call makes one from the shared metadata.
  void read(std::uint64_t group, const io::TableSink& sink) const override {
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_, parquet::default_reader_properties(), facts_));
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kBatchRows);
    builder.properties(properties);
    const auto reader = value_of(builder.Build());
    const auto batches = value_of(reader->GetRecordBatchReader({static_cast<int>(group)}));
    while (const auto batch = value_of(batches->Next())) send(batch, sink);
  }

 private:
  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::shared_ptr<parquet::FileMetaData> facts_;
};

/// Its batches are views of the mapped file.
class IpcTable final : public Table {
 public:
  explicit IpcTable(const std::shared_ptr<arrow::io::MemoryMappedFile>& file) {
    const auto size = value_of(file->GetSize());
    const auto lead = value_of(file->ReadAt(0, std::min<std::int64_t>(size, 6)));
    if (lead->ToString() == "ARROW1") {
      const auto reader = value_of(arrow::ipc::RecordBatchFileReader::Open(file.get()));
      for (int i = 0; i < reader->num_record_batches(); ++i) batches_.push_back(value_of(reader->ReadRecordBatch(i)));
      return;
    }
    const auto reader = value_of(arrow::ipc::RecordBatchStreamReader::Open(file.get()));
    while (auto batch = value_of(reader->Next())) batches_.push_back(std::move(batch));
  }
  std::uint64_t groups() const override { return batches_.size(); }
  std::int64_t rows(std::uint64_t group) const override { return batches_[group]->num_rows(); }
  void read(std::uint64_t group, const io::TableSink& sink) const override {
    check(batches_[group]->ValidateFull());  // a damaged file may have invalid offsets
    for (std::int64_t at = 0; at < batches_[group]->num_rows(); at += kBatchRows)
      send(batches_[group]->Slice(at, kBatchRows), sink);
  }

 private:
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
};

std::unique_ptr<Table> open_table(const std::string& path) {
  const auto file = value_of(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  if (file_ending(path) == ".parquet") return std::make_unique<ParquetTable>(file);
  return std::make_unique<IpcTable>(file);
}

const Table& table_of(void* table) {
  return *static_cast<const Table*>(table);
}

/// Runs `body`; reports an exception to `fault` and returns false.
template <class Body>
bool guarded(const io::TableFault& fault, const Body& body) {
  try {
    body();
    return true;
  } catch (const std::exception& e) {
    fault.say(fault.context, e.what());
  }
  return false;
}

constexpr io::TablePlugin kPlugin{io::kTablePluginVersion,
                                  [](const char* path, io::TableFault fault) -> void* {
                                    std::unique_ptr<Table> table;
                                    guarded(fault, [&] { table = open_table(path); });
                                    return table.release();
                                  },
                                  [](void* table) { delete static_cast<Table*>(table); },
                                  [](void* table) { return table_of(table).groups(); },
                                  [](void* table, std::uint64_t group) { return table_of(table).rows(group); },
                                  [](void* table, std::uint64_t group, io::TableSink sink, io::TableFault fault) {
                                    return guarded(fault, [&] { table_of(table).read(group, sink); });
                                  }};

}  // namespace
}  // namespace qft::arrow_table

extern "C" __attribute__((visibility("default"))) const qft::io::TablePlugin* qft_table_plugin() {
  arrow::util::InitializeUTF8();
  return &qft::arrow_table::kPlugin;
}
