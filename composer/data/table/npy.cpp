#include "composer/data/table/npy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>

#include "composer/core/error.h"
#include "composer/data/table/npy_header.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/tensor_bytes.h"
#include "composer/formats/zip_reader.h"
#include "composer/formats/zip_writer.h"
#include "composer/util/new_file.h"

namespace composer::data {
namespace {

namespace fs = std::filesystem;
using detail::NpyHeader;

constexpr std::uint64_t kMostOfDeflate = 1032;  // the highest compression ratio; masks and zeros come near it
constexpr std::string_view kNpySuffix = ".npy";

constexpr struct {
  char kind;
  std::size_t size;
  at::ScalarType type;
} kElements[] = {
    {'b', 1, at::kBool},         {'i', 1, at::kChar},           {'i', 2, at::kShort},  {'i', 4, at::kInt},
    {'i', 8, at::kLong},         {'u', 1, at::kByte},           {'u', 2, at::kUInt16}, {'u', 4, at::kUInt32},
    {'u', 8, at::kUInt64},       {'f', 2, at::kHalf},           {'f', 4, at::kFloat},  {'f', 8, at::kDouble},
    {'c', 8, at::kComplexFloat}, {'c', 16, at::kComplexDouble},
};

at::ScalarType type_of(const NpyHeader& header) {
  for (const auto& [kind, size, type] : kElements)
    if (kind == header.kind && size == header.item_size) return type;
  throw Error("npy: a type without a tensor");  // read_npy_header() accepts none
}

// Calls `read`, whose errors are those of files of weights.
template <class Read>
auto with_data_errors(const Read& read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

void swap_bytes(char* bytes, std::size_t size, std::size_t item) {
  for (std::size_t at = 0; at + item <= size; at += item) std::reverse(bytes + at, bytes + at + item);
}

at::Tensor room_for(std::int64_t bytes, const std::string& name) {
  try {
    return formats::new_tensor({bytes}, at::kByte);
  } catch (const c10::Error&) {
    throw DataError(name, ": there is not enough memory for its ", bytes, " bytes");
  }
}

// The bytes of the elements as the array that the header describes.
at::Tensor as_array(at::Tensor bytes, const NpyHeader& header, const std::string& name) {
  if (header.kind == 'b' && !formats::are_bools(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()))
    throw DataError(name, ": an element of type bool is neither 0 nor 1");
  if (header.big_endian)  // the parts of a complex number are swapped one by one
    swap_bytes(static_cast<char*>(bytes.mutable_data_ptr()), bytes.nbytes(),
               header.kind == 'c' ? header.item_size / 2 : header.item_size);
  if (bytes.storage_offset() % static_cast<std::int64_t>(header.item_size) != 0) bytes = bytes.clone();
  const at::Tensor elements = bytes.view(type_of(header));
  if (!header.fortran_order || header.shape.size() < 2) return elements.view(header.shape);
  const std::vector<std::int64_t> reversed(header.shape.rbegin(), header.shape.rend());
  std::vector<std::int64_t> order(header.shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(order.size() - 1 - i);
  return elements.view(reversed).permute(order);
}

// Reads the header of an array of `size` bytes, which read(offset, to, count) gives.
template <class Read>
NpyHeader header_of(std::uint64_t size, const std::string& name, const Read& read) {
  std::string bytes(std::min<std::uint64_t>(size, detail::kNpyPrefix), '\0');
  read(bytes.data(), bytes.size());
  const std::size_t length = detail::npy_header_size(bytes, name);
  if (length > size) throw DataError(name, ": is cut off within its header, which has ", length, " bytes of ", size);
  bytes.resize(length);
  read(bytes.data(), bytes.size());
  NpyHeader header = detail::read_npy_header(bytes, name);
  const std::uint64_t rest = size - length;
  if (header.bytes > rest)
    throw DataError(name, ": is cut off: its array ", at::IntArrayRef(header.shape), " has ", header.bytes,
                    " bytes, and the file ", rest, " after its header");
  if (header.bytes < rest)
    throw DataError(name, ": its array ", at::IntArrayRef(header.shape), " has ", header.bytes, " bytes, and the file ",
                    rest, " after its header; a file of several calls of numpy.save is not read");
  return header;
}

// Pages of a file, unmapped with the last tensor that refers to them.
at::Tensor mapped(const fs::path& file, std::uint64_t size, const NpyHeader& header) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(file.string(), ": cannot be opened: ", std::strerror(errno));
  void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (pages == MAP_FAILED) throw DataError(file.string(), ": cannot be mapped into memory: ", std::strerror(error));
  return at::from_blob(
             pages, {static_cast<std::int64_t>(size)}, [size](void* data) { ::munmap(data, size); }, at::kByte)
      .slice(0, static_cast<std::int64_t>(header.size));
}

std::string element_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided)
    throw ConfigError(name, ": ", tensor.defined() ? "a tensor that is not dense" : "an undefined tensor",
                      " cannot be written");
  for (const auto& [kind, size, type] : kElements)
    if (type == tensor.scalar_type()) return join(size == 1 ? '|' : '<', kind, size);
  throw ConfigError(name, ": NumPy has no ", tensor.scalar_type(), "; convert the tensor, as with .to(at::kFloat)");
}

template <class Write>
void write_array(const std::string& name, const at::Tensor& tensor, const Write& write) {
  const std::string header = detail::make_npy_header(element_of(name, tensor), tensor.sizes().vec());
  const at::Tensor host = formats::on_host(tensor);
  write(header.data(), header.size());
  write(host.const_data_ptr(), host.nbytes());
}

}  // namespace

at::Tensor read_npy(const fs::path& file, NpyOptions options) {
  return with_data_errors([&] {
    const auto source = formats::open_file(file);
    const std::string& name = source->name();
    const NpyHeader header =
        header_of(source->size(), name, [&](void* to, std::size_t size) { source->read(0, to, size); });
    if (options.memory_map && header.big_endian)
      throw DataError(name, ": is big-endian, so it cannot be used where it lies; read it without memory_map");
    if (options.memory_map && header.bytes > 0) return as_array(mapped(file, source->size(), header), header, name);
    const at::Tensor bytes = room_for(static_cast<std::int64_t>(header.bytes), name);
    if (header.bytes > 0) source->read(header.size, bytes.mutable_data_ptr(), header.bytes);
    return as_array(bytes, header, name);
  });
}

Batch read_npz(const fs::path& file) {
  return with_data_errors([&] {
    const auto source = formats::open_file(file);
    const formats::ZipReader zip(*source, kMostOfDeflate);
    Batch arrays;
    for (const formats::ZipEntry& entry : zip.entries()) {
      const std::string place = join(source->name(), ": ", formats::shown(entry.name));
      if (!entry.name.ends_with(kNpySuffix)) throw DataError(place, ": is no array, whose name ends in .npy");
      const at::Tensor bytes = room_for(static_cast<std::int64_t>(entry.size), place);
      zip.read(entry, bytes.mutable_data_ptr());
      const NpyHeader header = header_of(
          entry.size, place, [&](void* to, std::size_t size) { std::memcpy(to, bytes.const_data_ptr(), size); });
      arrays.set(entry.name.substr(0, entry.name.size() - kNpySuffix.size()),
                 as_array(bytes.slice(0, static_cast<std::int64_t>(header.size)), header, place));
    }
    if (arrays.empty()) throw DataError(source->name(), ": has no arrays");
    return arrays;
  });
}

void write_npy(const at::Tensor& tensor, const fs::path& file) {
  element_of(file.string(), tensor);
  util::NewFile to(file);
  write_array(file.string(), tensor, [&](const void* data, std::size_t size) { to.write(data, size); });
  to.commit();
}

void write_npz(const Batch& tensors, const fs::path& file) {
  if (tensors.empty()) throw ConfigError(file.string(), ": no tensors to write");
  for (const auto& [name, tensor] : tensors) {
    element_of(join(file.string(), ": ", name), tensor);
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw ConfigError(file.string(), ": an array cannot be called \"", formats::shown(name), '"');
  }
  util::NewFile to(file);
  const formats::Sink sink = [&](const void* data, std::size_t size) { to.write(data, size); };
  formats::ZipWriter zip(sink);
  for (const auto& [name, tensor] : tensors) {
    zip.begin(name + std::string(kNpySuffix));
    write_array(name, tensor, [&](const void* data, std::size_t size) { zip.write(data, size); });
    zip.end();
  }
  zip.finish();
  to.commit();
}

}  // namespace composer::data
