#include "composer/data/table/npy.h"

#include <fstream>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/idx_files.h"
#include "tests/support/places.h"
#include "tests/support/text.h"

namespace composer::npy_test {

using namespace test;
using data::read_npy;
using data::read_npz;
using data::write_npy;
using data::write_npz;

namespace {

// A file of numpy.save with this header, and elements.
Bytes npy(const std::string& header, const Bytes& elements, char version = 1) {
  Bytes bytes = "\x93NUMPY";
  bytes += {version, 0, static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  if (version > 1) bytes += Bytes(2, '\0');
  return bytes + header + elements;
}

Bytes header_of(const std::string& element, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + element + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

at::Tensor read_bytes(const Bytes& bytes, bool memory_map = false) {
  const TemporaryFolder folder;
  write(folder / "x.npy", bytes);
  return read_npy(folder / "x.npy", {.memory_map = memory_map});
}

}  // namespace

TEST_CASE("Arrays that NumPy has written are read, of every type, order of bytes and order of elements") {
  const Batch arrays = read_npz(repository() / "tests/data/table/golden/arrays.npz");
  CHECK(arrays.size() == 14 * 4 + 3);
  const at::Tensor numbers = at::arange(24).view({2, 3, 4});
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"i1", at::kChar},           {"i2", at::kShort},  {"i4", at::kInt},    {"i8", at::kLong},
      {"u1", at::kByte},           {"u2", at::kUInt16}, {"u4", at::kUInt32}, {"u8", at::kUInt64},
      {"f2", at::kHalf},           {"f4", at::kFloat},  {"f8", at::kDouble}, {"c8", at::kComplexFloat},
      {"c16", at::kComplexDouble}, {"b1", at::kBool}};
  const TemporaryFolder folder;
  for (const auto& [kind, type] : types)
    for (const char* order : {"little", "big"})
      for (const char* layout : {"C", "F"}) {
        const std::string name = kind + "_" + order + "_" + layout;
        CAPTURE(name);
        const at::Tensor array = arrays[name];
        CHECK((array.scalar_type() == type));
        CHECK(array.sizes() == numbers.sizes());
        CHECK(array.to(at::kComplexDouble).equal(numbers.to(type).to(at::kComplexDouble)));
        write_npy(array, folder / "x.npy");
        for (bool memory_map : {false, true}) {
          const at::Tensor again = read_npy(folder / "x.npy", {.memory_map = memory_map});
          CHECK((again.scalar_type() == type));
          CHECK(again.to(at::kComplexDouble).equal(array.to(at::kComplexDouble)));
        }
      }
  CHECK(arrays["scalar"].dim() == 0);
  CHECK(arrays["scalar"].item<double>() == 2.5);
  CHECK(arrays["empty"].sizes() == at::IntArrayRef({0, 3}));
  CHECK(arrays["row"].equal(at::arange(5)));
  const Batch compressed = read_npz(repository() / "tests/data/table/golden/compressed.npz");
  CHECK(compressed["zeros"].equal(at::zeros({500, 200})));
  CHECK(compressed["row"].equal(at::arange(5)));
}

TEST_CASE("Tensors that were written and read again are the same, in a file of one and of several") {
  const TemporaryFolder folder;
  for (const at::Tensor& tensor : {at::rand({3, 4}), at::rand({4, 3}).t(), at::rand({}), at::rand({0, 2}),
                                   at::arange(7), at::rand({2, 3, 4, 5}).permute({3, 1, 0, 2}), at::rand({3}) < 0.5,
                                   at::view_as_complex(at::rand({3, 2})).conj()}) {
    write_npy(tensor, folder / "deep" / "x.npy");
    CHECK(read_npy(folder / "deep" / "x.npy").equal(tensor));
    CHECK(read_npy(folder / "deep" / "x.npy", {.memory_map = true}).equal(tensor));
    write_npz({{"a", tensor}, {"b c", at::ones({2})}}, folder / "x.npz");
    CHECK(read_npz(folder / "x.npz")["a"].equal(tensor));
    CHECK(read_npz(folder / "x.npz")["b c"].equal(at::ones({2})));
  }
}

TEST_CASE("Writing into a mapped array changes neither the file nor another mapping of it") {
  const TemporaryFolder folder;
  write_npy(at::zeros({1000}), folder / "x.npy");
  at::Tensor mapped = read_npy(folder / "x.npy", {.memory_map = true});
  mapped.add_(1);
  CHECK(mapped.equal(at::ones({1000})));
  CHECK(read_npy(folder / "x.npy").equal(at::zeros({1000})));
  std::filesystem::remove(folder / "x.npy");
  CHECK(mapped.slice(0, 500).equal(at::ones({500})));
}

TEST_CASE("Headers as older versions of NumPy and Python have written them are read") {
  const Bytes elements("\1\0\2\0\3\0", 6);
  const at::Tensor expected = at::tensor({1, 2, 3}, at::kShort);
  for (const char* header : {"{'descr': '<i2', 'fortran_order': False, 'shape': (3L,), }  \n",
                             "{'shape': (3,), 'descr': \"<i2\", 'fortran_order': True}",
                             "{'descr':'=i2','fortran_order':False,'shape':(3,)}\n"})
    for (char version : {1, 2, 3}) CHECK(read_bytes(npy(header, elements, version)).equal(expected));
}

TEST_CASE("Each damaged or foreign file of an array is one line that names the file and what is wrong") {
  const Bytes four("\0\0\x80\x3F", 4);
  const std::pair<Bytes, const char*> cases[] = {
      {"", "x.npy: is no file of numpy.save"},
      {"\x93NUM", "is no file of numpy.save: it does not begin with"},
      {"a,b\n1,2\n", "is no file of numpy.save"},
      {"PK\3\4 and more", "it is a zip file, which read_npz reads if numpy.savez has written it"},
      {"\x93NUMPY\1", "is cut off within its header"},
      {Bytes("\x93NUMPY\4\0\2\0{}", 12), "has version 4.0 of the format; 1.0, 2.0 and 3.0 are known"},
      {Bytes("\x93NUMPY\1\1\2\0{}", 12), "has version 1.1 of the format"},
      {Bytes("\x93NUMPY\2\0\2\0", 10), "is cut off within its header"},
      {Bytes("\x93NUMPY\1\0\x50\0{'descr'", 18), "is cut off within its header, which has 90 bytes of 18"},
      {Bytes("\x93NUMPY\2\0\xFF\xFF\xFF\x7F", 12), "its header has 2147483647 bytes, expected at most 65536"},
      {npy(header_of("|O", "(1,)"), four),
       "its elements are Python objects, which are pickled, which a tensor cannot have; convert"},
      {npy(header_of("<U3", "(1,)"), four), "its elements are texts"},
      {npy(header_of("|S3", "(1,)"), four), "its elements are texts"},
      {npy(header_of("<M8[ns]", "(1,)"), four), "its elements are dates"},
      {npy(header_of("|V2", "(1,)"), four), "its elements are bytes without a type"},
      {npy(header_of("<f16", "(1,)"), four), "its elements are of type <f16, which a tensor cannot have"},
      {npy(header_of("<f3", "(1,)"), four), "its elements are of type <f3"},
      {npy(header_of("<x4", "(1,)"), four), "its elements are of type <x4"},
      {npy(header_of("<f", "(1,)"), four), "an unknown element type: <f"},
      {npy(header_of("", "(1,)"), four), "no element type"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", four),
       "its elements are records (a structured dtype)"},
      {npy("{'descr': '<f4', 'fortran_order': False, }", four), "descr, fortran_order or shape is missing"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", four), "expected True or False at byte 34"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", four), "expected a length"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", four), "expected )"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': 1}", four), "expected ("},
      {npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", four),
       "a key that the format does not have, or has twice: descr"},
      {npy("{'descr': '<f4', 'size': 3}", four), "or has twice: size"},
      {npy("{'descr: 3}", four), "a text without end"},
      {npy("{descr: 3}", four), "expected a text"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} more", four), "more text after the header"},
      {npy("", four), "expected {"},
      {npy(header_of("<f4", "(3,)"), four), "is cut off: its array [3] has 12 bytes, and the file 4 after its header"},
      {npy(header_of("<f4", "(1,)"), four + four),
       "has 4 bytes, and the file 8 after its header; a file of several calls of numpy.save"},
      {npy(header_of("<f4", "(0,)"), four), "its array [0] has 0 bytes, and the file 4"},
      {npy(header_of("<f4", "(9223372036854775807, 9223372036854775807)"), four), "too large for any memory"},
      {npy(header_of("<f4", "(9223372036854775807, 0, 5)"), ""), "too large for any memory"},
      {npy(header_of("<f4", "(99999999999999999999,)"), four), "expected a length"},
      {npy(header_of("<f4", "(4611686018427387904,)"), four), "too large for any memory"},
      {npy(header_of("<f4", "(1000000000000,)"), four),
       "is cut off: its array [1000000000000] has 4000000000000 bytes"},
      {npy(header_of("|b1", "(4,)"), Bytes("\0\1\2\0", 4)), "an element of type bool is neither 0 nor 1"},
  };
  for (const auto& [bytes, text] : cases)
    for (bool memory_map : {false, true}) {
      const std::string error = error_of([&, &bytes = bytes] { read_bytes(bytes, memory_map); });
      CAPTURE(text);
      CAPTURE(error);
      CHECK(contains(error, text));
      CHECK(contains(error, "x.npy: "));
      CHECK(error.find('\n') == std::string::npos);
    }
  CHECK_THROWS_WITH_AS(read_bytes(npy(header_of(">f4", "(1,)"), four), true), doctest::Contains("is big-endian"),
                       DataError);
  CHECK_THROWS_WITH_AS(read_npy("/no/such.npy"), doctest::Contains("could not open /no/such.npy: No such file"),
                       DataError);
}

TEST_CASE("Each damaged zip file of arrays is one line that names the file and the array") {
  const TemporaryFolder folder;
  write_npz({{"a", at::rand({100})}}, folder / "x.npz");
  const Bytes whole = text_of(folder / "x.npz");
  const auto error = [&](const Bytes& bytes) {
    write(folder / "y.npz", bytes);
    return error_of([&] { read_npz(folder / "y.npz"); });
  };
  CHECK(contains(error(""), "not a zip file"));
  CHECK(contains(error(npy(header_of("<f4", "(0,)"), "")), "y.npz: not a zip file, or cut off"));
  CHECK(contains(error(whole.substr(0, 300)), "y.npz: not a zip file, or cut off"));
  Bytes damaged = whole;
  damaged[300] ^= 1;
  CHECK(contains(error(damaged), "y.npz: a.npy is damaged: the 528 bytes from byte 64 do not match their CRC"));
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK(contains(error(whole.substr(0, length)), "y.npz: "));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes changed = whole;
    changed[at] ^= 0x55;
    const std::string text = error(changed);
    CHECK((text == "no error" || (contains(text, "y.npz") && text.find('\n') == std::string::npos)));
  }
}

TEST_CASE("A tensor that NumPy has no type for, and a name that is no file, are refused before anything is written") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(write_npy(at::zeros({2}, at::kBFloat16), folder / "x.npy"),
                       doctest::Contains("NumPy has no BFloat16; convert the tensor"), ConfigError);
  CHECK_THROWS_WITH_AS(write_npz({{"a", at::Tensor()}}, folder / "x.npy"),
                       doctest::Contains("x.npy: a: an undefined tensor"), ConfigError);
  CHECK_THROWS_WITH_AS(write_npz({{"a/b", at::zeros({2})}}, folder / "x.npy"),
                       doctest::Contains("cannot be called \"a/b\""), ConfigError);
  CHECK_THROWS_WITH_AS(write_npz({}, folder / "x.npy"), doctest::Contains("no tensors"), ConfigError);
  CHECK_FALSE(std::filesystem::exists(folder / "x.npy"));
}

}  // namespace composer::npy_test
