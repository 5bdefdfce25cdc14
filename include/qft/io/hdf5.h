// RAII over the HDF5 C API, limited to the pack's needs: attributes, and contiguous datasets at a known file offset, which
// readers can pread without HDF5. Every failure is a qft::Error with file, object and HDF5's own message stack; HDF5 prints
// nothing. HDF5 is not thread-safe: one internal lock serializes all calls, so a collective call must not wait for another
// thread's HDF5 call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <mpi.h>

namespace qft::io::h5 {

/// Element types, little-endian in the file.
enum class Type : std::uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 };

std::size_t size_of(Type type);
std::string_view name_of(Type type);

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? Type::f32 : Type::f64;
  } else {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>);
    constexpr Type kSigned[] = {Type::i8, Type::i16, Type::i32, Type::i64};
    constexpr Type kUnsigned[] = {Type::u8, Type::u16, Type::u32, Type::u64};
    constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
  }
}

/// An HDF5 identifier together with the function that closes it.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { reset(); }
  std::int64_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes the identifier now; returns false if HDF5 refused.
  bool reset() noexcept;

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

/// Attribute access, shared by File (its root group), Group and Dataset. In a file opened on a communicator the set calls are
/// collective (same arguments on every rank).
class Object {
 public:
  bool has_attribute(const std::string& name) const;
  std::vector<std::string> attribute_names() const;

  /// Create the attribute; throw if it exists. Strings are UTF-8, fixed-length, without NUL bytes, any length.
  void set_int(const std::string& name, std::int64_t value);
  void set_double(const std::string& name, double value);
  void set_string(const std::string& name, std::string_view value);
  void set_strings(const std::string& name, const std::vector<std::string>& values);

  /// Throw if the attribute is missing or has another kind or shape (strings may be of fixed or variable length).
  std::int64_t get_int(const std::string& name) const;
  double get_double(const std::string& name) const;
  std::string get_string(const std::string& name) const;
  std::vector<std::string> get_strings(const std::string& name) const;

  /// "file.h5:/path", for messages.
  const std::string& label() const { return label_; }
  std::int64_t id() const { return handle_.get(); }

 protected:
  Object() = default;
  Object(Handle handle, std::string label) : handle_(std::move(handle)), label_(std::move(label)) {}
  std::vector<std::string> read_strings(const std::string& name, bool scalar) const;
  void write_strings(const std::string& name, std::span<const std::string_view> values, bool scalar);

  Handle handle_;
  std::string label_;
};

/// A contiguous, unchunked dataset of one or two dimensions.
class Dataset : public Object {
 public:
  Type type() const { return type_; }
  /// {elements} or {rows, columns}.
  const std::vector<std::uint64_t>& shape() const { return shape_; }
  std::uint64_t elements() const { return elements_; }
  std::uint64_t bytes() const { return elements() * size_of(type_); }

  /// File offset of element 0 (H5Dget_offset); the other elements follow without gaps. 0 for a dataset without elements.
  std::uint64_t offset() const { return offset_; }

  /// Read or write `values.size()` elements of the flattened dataset, from `first` on. T must be the dataset's type. Throw if the
  /// range exceeds the dataset; with two dimensions, only whole rows are allowed. Independent calls. The collective forms are for
  /// files opened on a communicator: every rank must call them, with an empty span if it has nothing.
  template <class T>
  void read(std::uint64_t first, std::span<T> values) const {
    transfer(first, values.size(), type_of<T>(), values.data(), nullptr, false);
  }
  template <class T>
  void write(std::uint64_t first, std::span<const T> values) {
    transfer(first, values.size(), type_of<T>(), nullptr, values.data(), false);
  }
  template <class T>
  void write_collective(std::uint64_t first, std::span<const T> values) {
    transfer(first, values.size(), type_of<T>(), nullptr, values.data(), true);
  }
  /// All elements.
  template <class T>
  std::vector<T> read_all() const {
    std::vector<T> values(elements());
    read<T>(0, values);
    return values;
  }

 private:
  friend class File;
  Dataset(Handle handle, std::string label, std::uint64_t file_bytes);
  void transfer(std::uint64_t first, std::uint64_t count, Type type, void* in, const void* out, bool collective) const;

  Type type_ = Type::u8;
  std::vector<std::uint64_t> shape_;
  std::uint64_t elements_ = 0, offset_ = 0;
};

/// An HDF5 file; its attributes are the root group's. Object names are paths ("samples/tokens"); missing groups on the path are
/// created. Files hold no timestamps: equal contents give equal bytes, however many ranks wrote them.
class File : public Object {
 public:
  /// Creates or truncates. With a communicator: collective, over MPI-IO.
  static File create(const std::filesystem::path& path);
  static File create(const std::filesystem::path& path, MPI_Comm comm);
  /// Opens read-only. Throws if the file is missing, is not HDF5, or is shorter than it claims.
  static File open(const std::filesystem::path& path);
  static File open(const std::filesystem::path& path, MPI_Comm comm);

  /// Creates a contiguous dataset, allocated at once and never filled: every element must be written. Collective with a
  /// communicator.
  Dataset create_dataset(const std::string& name, Type type, const std::vector<std::uint64_t>& shape);
  template <class T>
  Dataset create_dataset(const std::string& name, std::uint64_t elements) {
    return create_dataset(name, type_of<T>(), {elements});
  }
  /// Opens a dataset. Throws if it is missing, or not one piece inside the file (chunked, compressed, never written, truncated).
  Dataset dataset(const std::string& name) const;
  /// True if a dataset or group with that path exists.
  bool contains(const std::string& name) const;
  /// Returns the names in a group ("/" for the root), sorted.
  std::vector<std::string> list(const std::string& group = "/") const;

  const std::filesystem::path& path() const { return path_; }
  /// Writes out everything and closes; throws on failure (a destructor cannot). Collective with a communicator. Destroy the
  /// file's Datasets before. Does not fsync the file: see sync_file() in storage.h.
  void close();

 private:
  File(Handle file, Handle root, std::filesystem::path path, std::uint64_t readable_bytes);
  static File make(const std::filesystem::path& path, MPI_Comm comm, bool create);

  Handle file_;
  std::filesystem::path path_;
  std::uint64_t readable_bytes_ = 0;
};

}  // namespace qft::io::h5
