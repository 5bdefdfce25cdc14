#include "hdf5_calls.h"

namespace qft::io::h5 {
namespace {

Type find_type(hid_t type, const std::string& label) {
  for (int i = 0; i <= static_cast<int>(Type::f64); ++i) {
    const auto candidate = static_cast<Type>(i);
    if (check(H5Tequal(type, file_type(candidate)), "cannot read the type of", label) > 0) return candidate;
  }
  fail("dataset '{}' has an element type that qft does not read (it reads little-endian integers and floats)", label);
}

std::uint64_t product(const std::vector<std::uint64_t>& shape, Type type, const std::string& label) {
  std::uint64_t bytes = size_of(type);
  for (const std::uint64_t n : shape)
    require(!__builtin_mul_overflow(bytes, n, &bytes), "dataset '{}' claims more than 2^64 bytes", label);
  return bytes / size_of(type);
}

}  // namespace

// `file_bytes`: size of the file, or 2^64 - 1 while the file is being written and not yet extended.
Dataset::Dataset(Handle handle, std::string label, std::uint64_t file_bytes) : Object(std::move(handle), std::move(label)) {
  const Handle type = own(H5Dget_type(id()), close_type, "cannot read the type of", label_);
  type_ = find_type(type.get(), label_);
  const Handle space = own(H5Dget_space(id()), close_space, "cannot read the shape of", label_);
  const int rank = check(H5Sget_simple_extent_ndims(space.get()), "cannot read the shape of", label_);
  require(rank == 1 || rank == 2, "dataset '{}' has {} dimensions instead of 1 or 2", label_, rank);
  hsize_t dims[2] = {0, 0};
  check(H5Sget_simple_extent_dims(space.get(), dims, nullptr), "cannot read the shape of", label_);
  shape_.assign(dims, dims + rank);
  elements_ = product(shape_, type_, label_);

  const Handle properties = own(H5Dget_create_plist(id()), close_properties, "cannot read the layout of", label_);
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  require(layout == H5D_CONTIGUOUS && H5Pget_external_count(properties.get()) == 0,
          "dataset '{}' is not one contiguous piece of its file: repack it with h5repack -l CONTI -f NONE", label_);
  if (elements_ == 0) return;
  const haddr_t address = H5Dget_offset(id());
  if (address == HADDR_UNDEF) fail("dataset '{}' was never written: {}", label_, take_error_stack());
  offset_ = address;
  require(offset_ <= file_bytes && bytes() <= file_bytes - offset_,
          "dataset '{}' needs bytes [{}, {}), the file has {}: it is damaged or truncated", label_, offset_, offset_ + bytes(),
          file_bytes);
}

void Dataset::transfer(std::uint64_t first, std::uint64_t count, Type type, void* in, const void* out, bool collective) const {
  require(type == type_, "dataset '{}' holds {}, not {}", label_, name_of(type_), name_of(type));
  require(first <= elements_ && count <= elements_ - first, "elements [{}, {}) of dataset '{}' requested, it has {}", first,
          first + count, label_, elements_);
  if (count == 0 && !collective) return;
  const std::uint64_t row = shape_.size() == 2 ? shape_[1] : 1;
  require(row <= 1 || (first % row == 0 && count % row == 0), "dataset '{}' is read and written in whole rows of {}", label_,
          row);
  const Lock lock;
  const Handle space = own(H5Dget_space(id()), close_space, "cannot select in", label_);
  const hsize_t memory_count = count;
  const Handle memory = own(H5Screate_simple(1, &memory_count, nullptr), close_space, "cannot select in", label_);
  if (count == 0) {
    check(H5Sselect_none(space.get()), "cannot select in", label_);
    check(H5Sselect_none(memory.get()), "cannot select in", label_);
  } else {
    const hsize_t start[2] = {first / row, 0}, extent[2] = {count / row, row};
    check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, extent, nullptr), "cannot select in", label_);
  }
  const Handle properties = own(H5Pcreate(H5P_DATASET_XFER), close_properties, "cannot set up a transfer of", label_);
  if (collective) check(H5Pset_dxpl_mpio(properties.get(), H5FD_MPIO_COLLECTIVE), "cannot set up a transfer of", label_);
  if (in != nullptr)
    check(H5Dread(id(), memory_type(type_), memory.get(), space.get(), properties.get(), in), "cannot read", label_);
  else if (out != nullptr || collective)
    check(H5Dwrite(id(), memory_type(type_), memory.get(), space.get(), properties.get(), out), "cannot write", label_);
}

}  // namespace qft::io::h5
