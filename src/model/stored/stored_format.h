// Reads a linear's weight from the files of a model that is already quantised: finds the tensors and converts them to qft's
// packed bytes. Each method has its own file and a case in make_stored_format(). Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

/// `weight` is the weight's name in a plain model: "...q_proj.weight".
class StoredFormat {
 public:
  virtual ~StoredFormat() = default;
  /// Returns the format to keep the weight in; none if the files hold it plain.
  virtual ops::Quantization kind(const io::ModelFiles& files, const std::string& weight) const = 0;
  /// Returns the tensors that files may have for the weight.
  virtual std::vector<std::string> tensors(const std::string& weight) const = 0;
  /// Throws Error, naming file, tensor and both shapes or types, if the headers do not match. Reads no data.
  virtual void check(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout) const = 0;
  /// Fills the zeroed bytes [layout.bytes] of a weight that check() accepted. Throws Error if values are damaged. Returns the
  /// bytes read.
  virtual std::int64_t read(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout,
                            std::uint8_t* bytes) const = 0;
};
std::unique_ptr<StoredFormat> make_bitsandbytes_format();
std::unique_ptr<StoredFormat> make_fp8_format(const StoredQuantization& stored);
std::unique_ptr<StoredFormat> make_gptq_format(const StoredQuantization& stored);
std::unique_ptr<StoredFormat> make_awq_format(const StoredQuantization& stored);
std::unique_ptr<StoredFormat> make_stored_format(const StoredQuantization& stored);

/// The same for any weight that is_quantized(), including one that the files hold plain (QuantFormat::fp32).
std::vector<std::string> stored_tensors(const StoredFormat& format, const std::string& weight,
                                        const ops::QuantizedLayout& layout);
void check_stored(const StoredFormat& format, const io::ModelFiles& files, const std::string& weight,
                  const ops::QuantizedLayout& layout);
std::int64_t read_stored(const StoredFormat& format, const io::ModelFiles& files, const std::string& weight,
                         const ops::QuantizedLayout& layout, std::uint8_t* bytes);

/// Returns the name of a neighbouring tensor: "a.b.c" for "a.b.weight" and ".c".
std::string beside(const std::string& weight, std::string_view suffix);
/// Throws Error unless a tensor has this shape and one of these types.
void require_tensor(const io::ModelFiles& files, const std::string& name, const std::vector<std::int64_t>& shape,
                    const std::vector<DType>& types);
/// Reads a whole tensor. Adds its bytes to `read`.
std::vector<char> read_tensor(const io::ModelFiles& files, const std::string& name, std::int64_t& read);
/// Reads a whole tensor of a floating type as fp32. Throws Error naming an element that is not finite.
std::vector<float> read_floats(const io::ModelFiles& files, const std::string& name, std::int64_t& read);

}  // namespace qft::model
