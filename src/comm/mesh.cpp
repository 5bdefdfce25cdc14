#include "qft/comm/mesh.h"

#include "qft/core/error.h"
#include "qft/core/units.h"

#include <numeric>

#include <fmt/format.h>

namespace qft::comm {

namespace {

constexpr std::array<std::string_view, kAxes> kAxisNames = {"replicate", "pipeline", "shard", "context", "tensor"};
/// How a degree above 1 divides a run, in words, with the key that sets it.
constexpr std::array<std::string_view, kAxes> kPartNames = {
    "copies", "stages", "shards", "parts of each sequence (context_parallel)", "parts of each matrix (tensor_parallel)"};

std::array<int*, kAxes> fields(Degrees& d) {
  return {&d.replicate, &d.pipeline, &d.shard, &d.context, &d.tensor};
}
std::array<int, kAxes> values(Degrees d) {
  return {d.replicate, d.pipeline, d.shard, d.context, d.tensor};
}

std::string product(const std::array<int, kAxes>& degrees) {
  std::string text;
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (degrees[a] == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", kAxisNames[a],
                        degrees[a] == 0 ? std::string("?") : std::to_string(degrees[a]));
  }
  return text.empty() ? "replicate 1" : text;
}

}  // namespace

std::string_view name_of(Axis axis) {
  return kAxisNames[static_cast<std::size_t>(axis)];
}

Degrees resolve(Degrees degrees, int world_size) {
  const auto asked = values(degrees);
  int* open = nullptr;
  std::string_view open_name;
  long known = 1;
  const auto degree_of = fields(degrees);
  for (std::size_t a = 0; a < kAxes; ++a) {
    const int degree = *degree_of[a];
    if (degree < 0)
      fail_config("parallel degree of {} is {}: it must be 1 or more, or 0 for the remaining ranks", kAxisNames[a], degree);
    if (degree > 0) {
      known *= degree;
      continue;
    }
    if (open != nullptr) fail_config("parallel degrees {} and {} are both 0: only one degree may be 0", open_name, kAxisNames[a]);
    open = degree_of[a];
    open_name = kAxisNames[a];
  }
  if (open != nullptr && world_size % known == 0) {
    *open = static_cast<int>(world_size / known);
    return degrees;
  }
  if (open != nullptr) {
    fail_config("{} ranks do not divide by {} ({}): start a multiple of {} ranks or change the degrees", world_size, known,
                product(asked), known);
  }
  if (known != world_size) {
    fail_config("parallel degrees {} need {} ranks, but {} run: start {} ranks or change the degrees", product(asked), known,
                world_size, known);
  }
  return degrees;
}

std::string describe(const Degrees& degrees) {
  const auto all = values(degrees);
  const int ranks = std::accumulate(all.begin(), all.end(), 1, std::multiplies<>());
  std::string text = count_noun(ranks, "rank");
  const char* joint = " = ";
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (all[a] == 1) continue;
    text += fmt::format("{}{} {}", joint, all[a], kPartNames[a]);
    joint = " x ";
  }
  const int data = degrees.replicate * degrees.shard;
  return data == ranks ? text : text + "; " + count_noun(data, "data rank");
}

Mesh::Mesh(Degrees degrees, int rank, int ranks) : degrees_(resolve(degrees, ranks)) {
  QFT_ASSERT(rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  const auto extent = values(degrees_);
  for (std::size_t a = kAxes; a-- > 0;) {
    coordinates_[a] = rank % extent[a];
    rank /= extent[a];
  }
}

int Mesh::degree(Axis axis) const {
  return values(degrees_)[static_cast<std::size_t>(axis)];
}

int Mesh::coordinate(Axis axis) const {
  return coordinates_[static_cast<std::size_t>(axis)];
}

Place Mesh::place(const Axes& axes) const {
  return combined(axes, true);
}

int Mesh::group_number(const Axes& axes) const {
  return combined(axes, false).rank;
}

Place Mesh::combined(const Axes& axes, bool inside) const {
  Place place;
  for (std::size_t a = 0; a < kAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    if (axes.has(axis) != inside) continue;
    place.rank = place.rank * degree(axis) + coordinate(axis);
    place.size *= degree(axis);
  }
  return place;
}

}  // namespace qft::comm
