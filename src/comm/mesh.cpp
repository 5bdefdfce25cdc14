#include "qft/comm/mesh.h"

#include "qft/core/error.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace qft::comm {

namespace {

constexpr std::array<std::string_view, kAxes> kAxisNames = {"replicate", "pipeline", "shard", "context", "tensor"};

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
  return fmt::format("{} {} = {}", ranks, ranks == 1 ? "rank" : "ranks", product(all));
}

Mesh::Mesh(Communicator& world, Degrees degrees, const ForDevice& for_device) : degrees_(resolve(degrees, world.size())) {
  const auto extent = values(degrees_);
  int rest = world.rank();
  for (std::size_t a = kAxes; a-- > 0;) {
    coordinates_[a] = rest % extent[a];
    rest /= extent[a];
  }
  for (std::size_t a = 0; a < kAxes; ++a) {
    // Ranks share a group along an axis if they agree in all other axes: those coordinates, combined, give the colour.
    int color = 0;
    for (std::size_t b = 0; b < kAxes; ++b)
      if (b != a) color = color * extent[b] + coordinates_[b];
    auto group = world.split(color, world.rank(), std::string(kAxisNames[a]));
    groups_[a] = for_device ? for_device(std::move(group)) : std::move(group);
  }
}

Communicator& Mesh::group(Axis axis) const {
  return *groups_[static_cast<std::size_t>(axis)];
}
int Mesh::degree(Axis axis) const {
  return values(degrees_)[static_cast<std::size_t>(axis)];
}
int Mesh::coordinate(Axis axis) const {
  return coordinates_[static_cast<std::size_t>(axis)];
}

}  // namespace qft::comm
