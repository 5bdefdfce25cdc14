#include "qft/core/error.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace qft::model {
namespace {

std::vector<float> values_of(const io::TensorFile& file, const io::TensorEntry& entry) {
  std::vector<float> values(entry.elements());
  file.read_floats(entry, values.data());
  return values;
}

/// The file of A0 and B0, with the prefix removed from the names.
class InitialFactors : public io::TensorFile {
 public:
  explicit InitialFactors(std::unique_ptr<io::TensorFile> file)
      : TensorFile(io::File::open_read(file->path())), stored_(std::move(file)) {
    std::vector<io::TensorEntry> entries = stored_->entries();
    constexpr std::string_view kPrefix = kPissaPrefix;
    for (io::TensorEntry& entry : entries) {
      require(entry.name.starts_with(kPrefix) && entry.dtype == DType::f32 && entry.shape.size() == 2,
              "'{}': '{}' is not an initial PiSSA factor (fp32, named {}...)", path().string(), entry.name, kPrefix);
      entry.name.erase(0, kPrefix.size());
    }
    set_entries(std::move(entries));
  }

 protected:
  void read_checked(const io::TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const override {
    stored_->read(stored_->entries()[index_of(entry)], first_byte, bytes, dst);
  }

 private:
  std::unique_ptr<io::TensorFile> stored_;
};

/// Returns lora_a, lora_b, or base for other tensors.
Role role_of(const std::string& name) {
  return name.ends_with(kLoraA) ? Role::lora_a : name.ends_with(kLoraB) ? Role::lora_b : Role::base;
}

class PlainAdapter : public io::TensorFile {
 public:
  PlainAdapter(std::unique_ptr<io::TensorFile> adapter, std::unique_ptr<io::TensorFile> initial)
      : TensorFile(io::File::open_read(adapter->path())), adapter_(std::move(adapter)), initial_(std::move(initial)) {
    std::vector<io::TensorEntry> entries = adapter_->entries();
    std::size_t factors = 0;
    for (io::TensorEntry& entry : entries) {
      const Role role = role_of(entry.name);
      if (role == Role::base) continue;
      const io::TensorEntry& first = initial_->at(entry.name);
      require(first.shape == entry.shape, "'{}' has '{}' with another shape than '{}': they come from different runs",
              initial_->path().string(), entry.name, path().string());
      entry.shape[role == Role::lora_a ? 0 : 1] *= 2;
      entry.dtype = DType::f32;
      ++factors;
    }
    require(factors == initial_->entries().size(), "'{}' has {} factors, but '{}' has {}: they come from different runs",
            initial_->path().string(), initial_->entries().size(), path().string(), factors);
    set_entries(std::move(entries));
  }

 protected:
  void read_checked(const io::TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const override {
    const io::TensorEntry& now = adapter_->entries()[index_of(entry)];
    const Role role = role_of(entry.name);
    if (role == Role::base) return adapter_->read(now, first_byte, bytes, dst);
    const std::int64_t rank = now.shape[role == Role::lora_a ? 0 : 1];
    const auto both = with_initial_factor(role, rank, values_of(*adapter_, now), values_of(*initial_, initial_->at(entry.name)));
    std::memcpy(dst, reinterpret_cast<const char*>(both.data()) + first_byte, bytes);
  }

 private:
  std::unique_ptr<io::TensorFile> adapter_, initial_;
};

}  // namespace

void require_pissa(const ModelSpec& spec) {
  if (spec.config.stored)
    fail_config(
        "pissa_init: the model's files are quantised ({}), and PiSSA cannot subtract its factors from quantised weights: start "
        "from the 16-bit model, and quantization_bit then quantises the rest",
        describe(*spec.config.stored));
  for (const Layer& layer : spec.layers)
    for (const SubLayerSpec& sublayer : layer)
      for (const ParamGroup& group : sublayer.params)
        for (const LoraRows& rows : group.lora) {
          if (group.is_stack())
            fail_config(
                "pissa_init: experts ({}) are not implemented: name other linears in lora_target, such as "
                "q_proj,k_proj,v_proj,o_proj",
                group.stack.path);
          const LinearSpec& linear = group.linears[rows.linear];
          const std::int64_t most = std::min(linear.rows.whole, linear.columns.whole);
          if (rows.rank > most)
            fail_config("pissa_init: {} has {} singular vectors, but rank {}: set lora_rank to {} or less", linear.path, most,
                        rows.rank, most);
          if (rows.scaling == 0)
            fail_config("pissa_init: lora_alpha is 0: PiSSA would subtract from the weights without adding back");
        }
}

std::unique_ptr<io::TensorFile> open_initial_factors(const std::filesystem::path& file) {
  require(std::filesystem::exists(file),
          "'{}' does not exist: without PiSSA's initial factors the adapter's base weights are unknown", file.string());
  return std::make_unique<InitialFactors>(io::open_tensor_file(file));
}

std::vector<float> with_initial_factor(Role role, std::int64_t rank, std::span<const float> now, std::span<const float> initial) {
  QFT_ASSERT(now.size() == initial.size(), "{} trained elements, but {} initial ones", now.size(), initial.size());
  std::vector<float> both;
  both.reserve(now.size() * 2);
  if (role == Role::lora_a) {
    both.assign(now.begin(), now.end());
    both.insert(both.end(), initial.begin(), initial.end());
    return both;
  }
  const auto width = static_cast<std::size_t>(rank);
  for (std::size_t row = 0; row < now.size(); row += width) {
    const auto of = [&](std::span<const float> factor) { return factor.subspan(row, width); };
    both.insert(both.end(), of(now).begin(), of(now).end());
    std::ranges::transform(of(initial), std::back_inserter(both), std::negate());
  }
  return both;
}

std::unique_ptr<io::TensorFile> as_plain_adapter(std::unique_ptr<io::TensorFile> adapter,
                                                 std::unique_ptr<io::TensorFile> initial) {
  return std::make_unique<PlainAdapter>(std::move(adapter), std::move(initial));
}

}  // namespace qft::model
