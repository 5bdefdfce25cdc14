#include "rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace qft::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

RopeConfig::Llama3 read_llama3(const ConfigReader& reader) {
  RopeConfig::Llama3 llama3;
  llama3.factor = reader.number("factor", llama3.factor);
  llama3.low_freq_factor = reader.number("low_freq_factor", llama3.low_freq_factor);
  llama3.high_freq_factor = reader.number("high_freq_factor", llama3.high_freq_factor);
  llama3.original_max_position_embeddings =
      reader.integer("original_max_position_embeddings", llama3.original_max_position_embeddings);
  return llama3;
}

double read_factor(const ConfigReader& reader) {
  const double factor = reader.number("factor", 0.0);
  require(factor >= 1.0 && std::isfinite(factor), "{}: factor is {}, expected a number of 1 or more", reader.where(), factor);
  return factor;
}

/// Of cosines and sines, for contexts `factor` times as long (Peng et al. 2023, equation 22).
double temperature(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeConfig::Yarn read_yarn(const ConfigReader& reader, std::int64_t max_positions) {
  RopeConfig::Yarn yarn;
  yarn.factor = read_factor(reader);
  yarn.beta_fast = reader.number("beta_fast", yarn.beta_fast);
  yarn.beta_slow = reader.number("beta_slow", yarn.beta_slow);
  yarn.original_max_position_embeddings = reader.positive("original_max_position_embeddings", max_positions);
  yarn.truncate = reader.boolean("truncate", yarn.truncate);
  const double mscale = reader.number("mscale", 0.0), all_dims = reader.number("mscale_all_dim", 0.0);
  const double usual = mscale != 0.0 && all_dims != 0.0 ? temperature(yarn.factor, mscale) / temperature(yarn.factor, all_dims)
                                                        : temperature(yarn.factor);
  yarn.attention_factor = reader.number("attention_factor", usual);
  return yarn;
}

std::int64_t reached(double factor, std::int64_t positions) {
  return static_cast<std::int64_t>(std::min(factor * static_cast<double>(positions), 1e9));
}

/// The base of the rotations of a sequence of `length` tokens, in fp32 but for its power, as transformers computes it.
float base_of(const RopeConfig& rope, double dim, std::int64_t length) {
  const float theta = static_cast<float>(rope.theta);
  if (!rope.follows(length)) return theta;
  const double factor = rope.dynamic->factor;
  const float scaled = static_cast<float>(factor) * static_cast<float>(length) / static_cast<float>(rope.dynamic->positions);
  const float stretch = scaled - static_cast<float>(factor - 1.0);
  return theta * static_cast<float>(std::pow(static_cast<double>(stretch), dim / (dim - 2.0)));
}

float scaled_by(const RopeConfig::Llama3& s, float f) {
  const double old_context = static_cast<double>(s.original_max_position_embeddings);
  const double wavelength = 2.0 * std::numbers::pi / f;
  if (wavelength > old_context / s.low_freq_factor) return static_cast<float>(f / s.factor);
  if (wavelength < old_context / s.high_freq_factor) return f;
  const double smooth = (old_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * f / s.factor + smooth * f);
}

/// The dimensions between which YaRN goes over from old frequencies to interpolated ones.
struct YarnRange {
  double low, high;

  YarnRange(const RopeConfig::Yarn& y, double theta, double dim) {
    const auto dimension = [&](double rotations) {
      return dim * std::log(static_cast<double>(y.original_max_position_embeddings) / (rotations * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(theta));
    };
    low = dimension(y.beta_fast);
    high = dimension(y.beta_slow);
    if (y.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1.0);
    if (low == high) high += 0.001;
  }
};

float scaled_by(const RopeConfig::Yarn& y, const YarnRange& range, std::size_t i, float power) {
  const float ramp = std::clamp(
      (static_cast<float>(i) - static_cast<float>(range.low)) / static_cast<float>(range.high - range.low), 0.0F, 1.0F);
  const float old_share = 1.0F - ramp;
  return 1.0F / (static_cast<float>(y.factor) * power) * (1.0F - old_share) + 1.0F / power * old_share;
}

}  // namespace

RopeConfig read_rope(const ConfigReader& config, std::int64_t& max_positions, std::optional<double> partial) {
  RopeConfig rope;
  rope.theta = config.number("rope_theta", 10000.0);
  if (partial) rope.partial = config.number("partial_rotary_factor", *partial);
  // transformers 5 writes rope_parameters (theta inside); 4.x writes rope_theta and rope_scaling.
  const json* scaling = config.find("rope_parameters");
  if (scaling == nullptr) scaling = config.find("rope_scaling");
  if (scaling == nullptr) return rope;
  require(scaling->is_object(), "{}: rope scaling is {}, expected an object", config.where(), scaling->dump());
  const ConfigReader reader(*scaling, config.where() + ": rope_scaling");
  rope.theta = reader.number("rope_theta", rope.theta);
  if (partial) rope.partial = reader.number("partial_rotary_factor", rope.partial);
  require(rope.partial > 0.0 && rope.partial <= 1.0, "{}: partial_rotary_factor is {}, expected a share of a head",
          config.where(), rope.partial);
  const std::string type = reader.text("rope_type", reader.text("type", "default"));
  if (type == "llama3") {
    rope.llama3 = read_llama3(reader);
  } else if (type == "yarn") {
    rope.yarn = read_yarn(reader, max_positions);
    max_positions = std::max(max_positions, reached(rope.yarn->factor, rope.yarn->original_max_position_embeddings));
  } else if (type == "linear") {
    rope.linear = read_factor(reader);
  } else if (type == "dynamic") {
    // transformers goes by max_position_embeddings even where the file has original_max_position_embeddings.
    require(config.find("max_position_embeddings") != nullptr,
            "{}: rope scaling 'dynamic' begins beyond max_position_embeddings, which is missing", config.where());
    rope.dynamic = {read_factor(reader), max_positions};
    max_positions = reached(rope.dynamic->factor, max_positions);
  } else {
    require(type == "default" || type == "mrope",
            "{}: rope scaling '{}' is not implemented (implemented: default, linear, llama3, yarn, dynamic)", config.where(),
            type);
  }
  return rope;
}

namespace {

/// The object of config.json that describes the decoder.
ordered_json& decoder_of(ordered_json& config) {
  const auto nested = config.find("text_config");
  return nested == config.end() ? config : *nested;
}

}  // namespace

std::int64_t ModelConfig::first_positions() const {
  if (rope.llama3) return rope.llama3->original_max_position_embeddings;
  if (rope.dynamic) return rope.dynamic->positions;
  return rope.yarn ? rope.yarn->original_max_position_embeddings : max_position_embeddings;
}

ModelConfig ModelConfig::scaled_to(std::int64_t tokens, const std::string& rope_type) const {
  const std::int64_t before = first_positions(), factor = (tokens + before - 1) / before;
  ordered_json whole = ordered_json::parse(raw);
  ordered_json& decoder = decoder_of(whole);
  ordered_json& scaling = decoder.contains("rope_parameters") ? decoder["rope_parameters"] : decoder["rope_scaling"];
  if (!scaling.is_object()) scaling = ordered_json::object();
  for (const char* key : {"type", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
                          "mscale_all_dim", "truncate", "original_max_position_embeddings"})
    scaling.erase(key);
  scaling["rope_type"] = rope_type;
  scaling["factor"] = static_cast<double>(factor);
  // As transformers reads it, dynamic scaling begins at the new max_position_embeddings.
  if (rope_type != "linear") scaling["original_max_position_embeddings"] = before;
  if (rope_type == "llama3") scaling.update({{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}});
  decoder["max_position_embeddings"] = before * factor;
  ModelConfig scaled = parse(whole.dump(2) + "\n", fmt::format("config.json with rope_scaling {}", rope_type));
  scaled.eos_token_ids = eos_token_ids;  // generation_config.json may have told them
  return scaled;
}

std::vector<double> ModelConfig::inverse_frequencies(std::int64_t length) const {
  const std::int64_t dim = rotary_dim();
  const float base = base_of(rope, static_cast<double>(dim), length);
  std::vector<double> freq(static_cast<std::size_t>(dim / 2));
  const std::optional<YarnRange> range =
      rope.yarn ? std::optional(YarnRange(*rope.yarn, rope.theta, static_cast<double>(dim))) : std::nullopt;
  for (std::size_t i = 0; i < freq.size(); ++i) {
    // fp32 as transformers computes it: the tables then agree to the last bit.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float power = std::pow(base, exponent);
    float f = 1.0f / power;
    if (rope.llama3) f = scaled_by(*rope.llama3, f);
    if (range) f = scaled_by(*rope.yarn, *range, i, power);
    if (rope.linear != 1.0) f /= static_cast<float>(rope.linear);
    freq[i] = f;
  }
  return freq;
}

}  // namespace qft::model
