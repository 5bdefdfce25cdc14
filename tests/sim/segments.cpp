#include "segments.h"

#include <algorithm>

namespace qft::sim {

void Segments::take(const void* data, std::size_t wanted, std::size_t capacity) {
  constexpr std::size_t kRounding = 512;  // the same as the device memory's
  const std::size_t bytes = (wanted + kRounding - 1) / kRounding * kRounding;
  const auto room = [](const Segment& s) { return s.size - s.used; };
  std::size_t best = all_.size();
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (room(all_[i]) >= bytes && (best == all_.size() || room(all_[i]) < room(all_[best]))) best = i;
  if (best == all_.size()) {
    if (static_cast<std::size_t>(reserved.current) + bytes > capacity) empty();
    best = static_cast<std::size_t>(std::ranges::find(all_, std::size_t{0}, &Segment::size) - all_.begin());
    if (best == all_.size()) all_.emplace_back();
    all_[best].size = bytes;
  }
  all_[best].used += bytes;
  places_[data] = {best, bytes};
  note();
}

void Segments::give(const void* data) {
  const auto place = places_.find(data);
  if (place == places_.end()) return;
  all_[place->second.segment].used -= place->second.bytes;
  places_.erase(place);
}

void Segments::empty() {
  for (Segment& s : all_)
    if (s.used == 0) s.size = 0;
  note();
}

void Segments::note() {
  std::size_t sum = 0;
  for (const Segment& s : all_) sum += s.size;
  const auto before = static_cast<std::size_t>(reserved.current);
  sum > before ? reserved.increase(sum - before) : reserved.decrease(before - sum);
}

}  // namespace qft::sim
