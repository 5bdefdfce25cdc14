// Quantises and decodes the tensors in a file, for scripts that compare with other implementations.
//   quantize_probe IN.safetensors OUT.safetensors FORMAT nested|plain
// IN: matrices in F32 or BF16. OUT: per matrix "NAME.codes", and the decoded values "NAME.f32" and "NAME.bf16".
#include "qft/core/error.h"
#include "qft/core/program.h"
#include "qft/device/scalar_type.h"
#include "qft/io/safetensors.h"
#include "qft/io/storage.h"
#include "qft/ops/quantized.h"

#include <map>
#include <string>

#include <ATen/ops/empty.h>

namespace {

using namespace qft;  // NOLINT: a test program

ops::QuantFormat format_of(const std::string& name) {
  for (const auto format : {ops::QuantFormat::nf4, ops::QuantFormat::fp4, ops::QuantFormat::int8, ops::QuantFormat::fp8})
    if (ops::name_of(format) == name) return format;
  fail("no format '{}'", name);
}

void run(const std::string& in, const std::string& to, const ops::Quantization& kind) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(in);
  std::map<std::string, at::Tensor> out;
  for (const io::TensorEntry& entry : file.entries()) {
    const std::string& name = entry.name;
    const at::Tensor values = at::empty(entry.shape, device::scalar_type_of(entry.dtype));
    file.read(entry, 0, values.nbytes(), values.data_ptr());
    const auto layout = ops::QuantizedLayout::of(kind, values.size(0), values.size(1));
    const at::Tensor bytes = at::empty({layout.bytes}, at::kByte);
    ops::quantize(values, layout, bytes);
    out[name + ".codes"] = bytes.narrow(0, 0, ops::four_bits(kind.format) ? (values.numel() + 1) / 2 : values.numel()).clone();
    for (const auto& [suffix, type] : {std::pair{".f32", at::kFloat}, {".bf16", at::kBFloat16}}) {
      out[name + suffix] = at::empty(values.sizes(), type);
      ops::dequantize(bytes, layout, out[name + suffix].view(-1));
    }
  }
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, t] : out) specs.push_back({name, device::dtype_of(t.scalar_type()), t.sizes().vec()});
  io::SafetensorsWriter writer(io::posix_storage(), to, specs);
  for (const auto& [name, t] : out) writer.append(t.data_ptr(), t.nbytes());
  writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return qft::run_program([&] {
    require(argc == 5, "usage: quantize_probe IN OUT FORMAT nested|plain");
    run(argv[1], argv[2], {format_of(argv[3]), std::string(argv[4]) == "nested"});
    return 0;
  });
}
