#include "qft/io/file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <limits>
#include <unistd.h>

#include "hdf5_calls.h"

namespace qft::io::h5 {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kUnknownSize = std::numeric_limits<std::uint64_t>::max();

// Runs `probe` on every rank and throws on all ranks if it threw on one, so that no rank enters a collective call alone.
void agree(MPI_Comm comm, const std::function<void()>& probe) {
  std::string reason;
  try {
    probe();
  } catch (const Error& e) {
    reason = e.what();
  }
  if (comm == MPI_COMM_NULL) {
    if (!reason.empty()) throw Error(reason);
    return;
  }
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  int mine = reason.empty() ? size : rank, first = size;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
  if (first == size) return;
  int length = static_cast<int>(reason.size());
  MPI_Bcast(&length, 1, MPI_INT, first, comm);
  reason.resize(static_cast<std::size_t>(length));
  MPI_Bcast(reason.data(), length, MPI_CHAR, first, comm);
  fail("rank {}: {}", first, reason);
}

void probe_create(const fs::path& path, MPI_Comm comm) {
  const auto open_here = [&path](int flags) {
    const int fd = ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0666);
    require(fd >= 0, "cannot create '{}': {}", path.string(), std::strerror(errno));
    ::close(fd);
  };
  int rank = 0;
  if (comm != MPI_COMM_NULL) MPI_Comm_rank(comm, &rank);
  agree(comm, [&] {
    if (rank == 0) open_here(O_CREAT | O_TRUNC);
  });
  // Every rank must see the file now: a directory private to a node is found here.
  agree(comm, [&] { open_here(0); });
}

void probe_open(const fs::path& path, MPI_Comm comm) {
  agree(comm, [&] {
    constexpr unsigned char kSignature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    const auto file = qft::io::File::open_read(path);
    unsigned char start[8] = {};
    if (file.size() >= 8) file.pread(0, start, 8);
    require(std::memcmp(start, kSignature, 8) == 0, "'{}' is not an HDF5 file", path.string());
  });
}

Handle access_properties(MPI_Comm comm, const std::string& label) {
  Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot set up", label);
  if (comm != MPI_COMM_NULL) {
    check(H5Pset_fapl_mpio(access.get(), comm, MPI_INFO_NULL), "cannot set up MPI-IO for", label);
    check(H5Pset_coll_metadata_write(access.get(), true), "cannot set up MPI-IO for", label);
  }
  // Object headers of this version have checksums, which reveal damage, and allow attributes of any size.
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST), "cannot set up", label);
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "cannot set up", label);
  // Large datasets start on a page, which suits direct reads.
  check(H5Pset_alignment(access.get(), 64 << 10, 4096), "cannot set up", label);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  // Parallel file systems often lack flock, and qft never reads and writes a file at the same time.
  check(H5Pset_file_locking(access.get(), false, true), "cannot set up", label);
#endif
  return access;
}

Handle untimed(hid_t property_class, const std::string& label) {
  Handle properties = own(H5Pcreate(property_class), H5Pclose, "cannot set up", label);
  check(H5Pset_obj_track_times(properties.get(), false), "cannot set up", label);
  return properties;
}

herr_t collect_link(hid_t, const char* name, const H5L_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

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

File::File(Handle file, Handle root, fs::path path, std::uint64_t readable_bytes)
    : Object(std::move(root), path.string()), file_(std::move(file)), path_(std::move(path)), readable_bytes_(readable_bytes) {}

File File::make(const fs::path& path, MPI_Comm comm, bool create) {
  create ? probe_create(path, comm) : probe_open(path, comm);
  const Lock lock;
  const std::string label = path.string();
  const Handle access = access_properties(comm, label);
  Handle file;
  if (create) {
    const Handle creation = untimed(H5P_FILE_CREATE, label);
    file = own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, "cannot create", label);
  } else {
    file = own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "cannot open the HDF5 file", label);
  }
  Handle root = own(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose, "cannot open the root of", label);
  return File(std::move(file), std::move(root), path, create ? kUnknownSize : fs::file_size(path));
}

File File::create(const fs::path& path) {
  return make(path, MPI_COMM_NULL, true);
}
File File::create(const fs::path& path, MPI_Comm comm) {
  return make(path, comm, true);
}
File File::open(const fs::path& path) {
  return make(path, MPI_COMM_NULL, false);
}
File File::open(const fs::path& path, MPI_Comm comm) {
  return make(path, comm, false);
}

Dataset File::create_dataset(const std::string& name, Type type, const std::vector<std::uint64_t>& shape) {
  const Lock lock;
  const std::string label = label_ + ":" + name;
  require(shape.size() == 1 || shape.size() == 2, "dataset '{}' needs 1 or 2 dimensions, got {}", label, shape.size());
  // Create groups here, because HDF5's automatic groups would carry timestamps.
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string group = name.substr(0, slash);
    if (contains(group)) continue;
    const Handle properties = untimed(H5P_GROUP_CREATE, label);
    own(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose, "cannot make the group of",
        label);
  }
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Handle space =
      own(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose, "cannot shape dataset", label);
  const Handle properties = untimed(H5P_DATASET_CREATE, label);
  check(H5Pset_layout(properties.get(), H5D_CONTIGUOUS), "cannot set up dataset", label);
  check(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY), "cannot set up dataset", label);
  check(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER), "cannot set up dataset", label);
  Handle dataset =
      own(H5Dcreate2(file_.get(), name.c_str(), file_type(type), space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
          H5Dclose, "cannot make dataset", label);
  return Dataset(std::move(dataset), label, kUnknownSize);
}

Dataset File::dataset(const std::string& name) const {
  const Lock lock;
  const std::string label = label_ + ":" + name;
  require(contains(name), "'{}' has no dataset '{}'", label_, name);
  Handle dataset = own(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose, "cannot open dataset", label);
  return Dataset(std::move(dataset), label, readable_bytes_);
}

bool File::contains(const std::string& name) const {
  const Lock lock;
  require(file_.valid(), "'{}' is closed", label_);
  // HDF5 requires that each step of the path exists before it is asked for the next one.
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1))
    if (check(H5Lexists(file_.get(), name.substr(0, slash).c_str(), H5P_DEFAULT), "cannot look into", label_) == 0) return false;
  return check(H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT), "cannot look into", label_) > 0;
}

std::vector<std::string> File::list(const std::string& group) const {
  const Lock lock;
  const std::string label = label_ + ":" + group;
  const Handle handle = own(H5Gopen2(file_.get(), group.c_str(), H5P_DEFAULT), H5Gclose, "cannot open group", label);
  std::vector<std::string> names;
  hsize_t position = 0;
  check(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, &position, &collect_link, &names), "cannot list", label);
  return names;
}

void File::close() {
  const Lock lock;
  handle_.reset();
  if (!file_.reset()) fail("cannot finish '{}': {}", label_, take_error_stack());
}

// `file_bytes`: size of the file, or 2^64 - 1 while the file is being written and not yet extended.
Dataset::Dataset(Handle handle, std::string label, std::uint64_t file_bytes) : Object(std::move(handle), std::move(label)) {
  const Handle type = own(H5Dget_type(id()), H5Tclose, "cannot read the type of", label_);
  type_ = find_type(type.get(), label_);
  const Handle space = own(H5Dget_space(id()), H5Sclose, "cannot read the shape of", label_);
  const int rank = check(H5Sget_simple_extent_ndims(space.get()), "cannot read the shape of", label_);
  require(rank == 1 || rank == 2, "dataset '{}' has {} dimensions instead of 1 or 2", label_, rank);
  hsize_t dims[2] = {0, 0};
  check(H5Sget_simple_extent_dims(space.get(), dims, nullptr), "cannot read the shape of", label_);
  shape_.assign(dims, dims + rank);
  elements_ = product(shape_, type_, label_);

  const Handle properties = own(H5Dget_create_plist(id()), H5Pclose, "cannot read the layout of", label_);
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
  const Handle space = own(H5Dget_space(id()), H5Sclose, "cannot select in", label_);
  const hsize_t memory_count = count;
  const Handle memory = own(H5Screate_simple(1, &memory_count, nullptr), H5Sclose, "cannot select in", label_);
  if (count == 0) {
    check(H5Sselect_none(space.get()), "cannot select in", label_);
    check(H5Sselect_none(memory.get()), "cannot select in", label_);
  } else {
    const hsize_t start[2] = {first / row, 0}, extent[2] = {count / row, row};
    check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, extent, nullptr), "cannot select in", label_);
  }
  const Handle properties = own(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "cannot set up a transfer of", label_);
  if (collective) check(H5Pset_dxpl_mpio(properties.get(), H5FD_MPIO_COLLECTIVE), "cannot set up a transfer of", label_);
  if (in != nullptr)
    check(H5Dread(id(), memory_type(type_), memory.get(), space.get(), properties.get(), in), "cannot read", label_);
  else if (out != nullptr || collective)
    check(H5Dwrite(id(), memory_type(type_), memory.get(), space.get(), properties.get(), out), "cannot write", label_);
}

}  // namespace qft::io::h5
