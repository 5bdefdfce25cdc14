// The raw texts of records that become tokens.
#pragma once

#include "qft/encode/record_converter.h"

#include <functional>
#include <string_view>

namespace qft::encode {

/// Belongs to one thread. The spec must outlive it.
class RecordTexts {
 public:
  RecordTexts(const DatasetSpec& spec, bool is_text) : spec_(spec), is_text_(is_text), converter_(spec, is_text) {}

  /// Passes each text of the used columns, at any depth, to `body` with its column. Throws Error as RecordConverter::convert()
  /// does if the record is not JSON.
  void each(const RecordText& record, const std::function<void(std::string_view column, std::string_view text)>& body);

 private:
  const DatasetSpec& spec_;
  bool is_text_;
  RecordConverter converter_;
};

}  // namespace qft::encode
