#include "composer/formats/pt_file.h"

#include <fstream>
#include <string>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "composer/formats/weights.h"
#include "composer/formats/zip_reader.h"
#include "tests/formats/bytes.h"
#include "tests/formats/tensors.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

namespace composer::test::pt_file_test {
namespace {

using namespace std::string_literals;

using namespace formats;

TEST_CASE("A .pt file gives back the tensors that it was given, to the bit and in order") {
  NamedTensors tensors = some_tensors();
  tensors.emplace_back("complex128", at::complex(at::ones({2}, at::kDouble), at::zeros({2}, at::kDouble)));
  tensors.emplace_back("conjugate", at::complex(at::ones({2}), at::ones({2})).conj());
  CHECK(same(open_pt(pt_bytes(tensors)).read_all(), tensors));
  CHECK(open_pt(pt_bytes({})).names().empty());
}

TEST_CASE("Tensors that share memory share it after they were written and read") {
  const at::Tensor base = at::arange(1'000'000);
  const NamedTensors tensors = {
      {"base", base}, {"row", base.view({1'000, 1'000})[3]}, {"all", base.view({1'000, 1'000}).t()}};
  const std::string bytes = pt_bytes(tensors);
  CHECK(bytes.size() < base.nbytes() + 10'000);
  const NamedTensors read = open_pt(bytes).read_all();
  CHECK(same(read, tensors));
  CHECK(read[1].second.is_alias_of(read[0].second));
  CHECK(read[2].second.strides() == tensors[2].second.strides());
  // A piece of a large one, without the others, is written alone.
  CHECK(pt_bytes({{"piece", base.slice(0, 0, 10)}}).size() < 10'000);
}

TEST_CASE("A storage of truth values is checked once, however many tensors lie in it") {
  const at::Tensor flags = at::zeros({4}, at::kBool);
  const formats::PtFile file = open_pt(pt_bytes({{"a", flags.slice(0, 0, 2)}, {"b", flags.slice(0, 2, 4)}}));
  at::Tensor a = file.read("a");
  static_cast<unsigned char*>(a.mutable_data_ptr())[3] = 7;  // the second check would find this
  CHECK_NOTHROW(file.read("b"));
}

TEST_CASE("What a .pt file cannot hold is refused") {
  CHECK_THROWS_AS(pt_bytes({{"a", at::Tensor()}}), ConfigError);
  CHECK_THROWS_AS(pt_bytes({{"a", at::ones({2}).to_sparse()}}), ConfigError);
  CHECK_THROWS_AS(pt_bytes({{"a", at::ones({2})}, {"a", at::ones({2})}}), ConfigError);
  CHECK_THROWS_AS(pt_bytes({{"\xFF", at::ones({2})}}), ConfigError);
}

// The pickle that another file has, in a zip of our own.
std::string pickle_of(const std::string& pt) {
  const auto file = bytes_in_memory(pt);
  const ZipReader zip(*file);
  return zip.read(*zip.find("archive/data.pkl"));
}

TEST_CASE("A .pt file whose parts do not fit together is an error that names it") {
  const std::string pickle = pickle_of(pt_bytes({{"a", at::ones({3})}}));
  const auto complaint = [](const std::vector<std::pair<std::string, std::string>>& entries) -> std::string {
    try {
      open_pt(zip_bytes(entries)).read_all();
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  const std::string twelve(12, '\0');
  CHECK(complaint({{"x/data.pkl", pickle}, {"x/data/0", twelve}}).empty());
  CHECK(complaint({{"x/data.pkl", pickle}, {"x/data/0", twelve}, {"x/byteorder", "little"}}).empty());
  CHECK(complaint({{"x/data.pkl", pickle}, {"x/data/0", twelve}, {"x/byteorder", "big"}}).find("big-endian") !=
        std::string::npos);
  CHECK(complaint({{"x/data/0", twelve}}).find("without data.pkl") != std::string::npos);
  CHECK(complaint({{"data.pkl", pickle}}).find("without data.pkl") != std::string::npos);
  CHECK(complaint({{"x/data.pkl", pickle}, {"y/data.pkl", pickle}, {"x/data/0", twelve}}).find("several folders") !=
        std::string::npos);
  CHECK(complaint({{"x/data.pkl", pickle}}).find("the storage 0 is missing") != std::string::npos);
  CHECK(complaint({{"x/data.pkl", pickle}, {"x/data/0", twelve.substr(1)}})
            .find("has 11 bytes, too few for 3 elements") != std::string::npos);
  const std::string bools = pickle_of(pt_bytes({{"a", at::ones({3}) > 0}}));
  CHECK(complaint({{"x/data.pkl", bools}, {"x/data/0", "\0\1\1"s}}).empty());
  CHECK(complaint({{"x/data.pkl", bools}, {"x/data/0", "\0\1\2"s}}).find("neither 0 nor 1") != std::string::npos);
  try {
    open_pt("\x80\x02whatever came then");
    FAIL("it was read");
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()).find("before PyTorch 1.6") != std::string::npos);
    CHECK(std::string(error.what()).find("_use_new_zipfile_serialization=False") != std::string::npos);
  }
}

std::string key(const std::string& letters) {
  return "\x8c" + std::string(1, static_cast<char>(letters.size())) + letters;
}

// A dict of these keys, opcodes that make values, and a tensor of the numbers 0, 1 and so on for each.
std::string pt_with_keys(const std::vector<std::string>& keys) {
  std::string pickle = "\x80\2}("s;
  std::vector<std::pair<std::string, std::string>> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string number(1, static_cast<char>(i));
    pickle += keys[i] + "ctorch._utils\n_rebuild_tensor_v2\n((" + key("storage") + "ctorch\nByteStorage\n" +
              key(std::to_string(i)) + key("cpu") + "K\1tQK\0K\1\x85K\1\x85\x89N"s + "tR";
    entries.emplace_back("a/data/" + std::to_string(i), number);
  }
  entries.emplace_back("a/data.pkl", pickle + "u.");
  return zip_bytes(entries);
}

TEST_CASE("Keys that are no texts are spelled as Python prints them") {
  const PtFile file = open_pt(pt_with_keys({"(K\1K\2t"s, "K\3\x85"s, "G\x3F\xF8\0\0\0\0\0\0"s, "G\x40\0\0\0\0\0\0\0"s,
                                            "\x88"s, "\x89"s, "N"s, key("name"), "(" + key("a") + ")\x88t"}));
  CHECK(file.names() ==
        std::vector<std::string>{"(1, 2)", "(3,)", "1.5", "2.0", "True", "False", "None", "name", "(a, (), True)"});
  CHECK(file.read("1.5").item<int>() == 2);
  const PtFile floats = open_pt(pt_with_keys({"G\x40\xF8\x6A\0\0\0\0\0"s, "G\x3F\x1A\x36\xE2\xEB\x1C\x43\x2D"s,
                                              "G\x43\x41\xC3\x79\x37\xE0\x80\0"s, "G\x7F\xF0\0\0\0\0\0\0"s}));
  CHECK(floats.names() == std::vector<std::string>{"100000.0", "0.0001", "1e+16", "inf"});
  // A tuple that holds the one before twice, again and again.
  std::string tuples = "\x80\2}K\1\x85q\0"s;
  for (int i = 0; i < 50; ++i)
    tuples += "h"s + static_cast<char>(i) + "h" + static_cast<char>(i) + "\x86q" + static_cast<char>(i + 1);
  CHECK_THROWS_AS(open_pt(zip_bytes({{"a/data.pkl", tuples + "Ns."}})), CheckpointError);
}

TEST_CASE("Tensors whose keys spell the same name are numbered, and none is taken for another") {
  const PtFile file = open_pt(pt_with_keys({"K\1"s, key("x"), key("1")}));
  CHECK(file.names() == std::vector<std::string>{"1 [1]", "x", "1 [2]"});
  CHECK(file.read("1 [2]").item<int>() == 2);
  CHECK(file.read("x").item<int>() == 1);
  CHECK_THROWS_AS(file.read("1"), CheckpointError);
  CHECK(open_pt(pt_with_keys({"K\1"s, key("1"), key("1 [1]")})).names() ==
        std::vector<std::string>{"1 [2]", "1 [3]", "1 [1]"});
}

TEST_CASE("A .pt file lists its tensors, and whether it has CRCs, without reading them") {
  std::string bytes =
      pt_bytes({{"a", at::ones({2, 3})}, {"b", at::complex(at::ones({1}, at::kDouble), at::ones({1}, at::kDouble))}});
  const PtFile file = open_pt(bytes);
  const auto tensors = file.tensors();
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "a");
  CHECK(tensors[0].dtype == "F32");
  CHECK(tensors[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors[0].bytes == 24);
  CHECK(tensors[1].dtype == "C128");
  CHECK(tensors[1].bytes == 16);
  CHECK(file.checksums());
}

TEST_CASE("Damage is found in every entry of a .pt file, whether or not this version can read what it holds") {
  const std::string foreign = "\x80\2cos\nPath\n)\x81."s;
  std::string bytes = zip_bytes({{"a/data.pkl", foreign}, {"a/data/0", "weights"}, {"a/extra", "more"}});
  CHECK(damaged_entries(*bytes_in_memory(bytes)).empty());
  CHECK_THROWS_WITH_AS(open_pt(bytes), doctest::Contains("such as os.Path; save the model's state_dict()"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(open_pt(bytes, {.allow_unknown = true}), doctest::Contains("such as os.Path"), UnsupportedError);
  for (const char* text : {"weights", "more"}) {
    std::string damaged = bytes;
    damaged[damaged.find(text)] ^= 1;
    CHECK(damaged_entries(*bytes_in_memory(damaged)).size() == 1);
  }
  CHECK(damaged_entries(*bytes_in_memory("\x80\2.")).empty());
}

// A file with one tensor, `a`, that torch.save describes with these metadata: opcodes that make a value.
std::string pt_with_metadata(const at::Tensor& tensor, const std::string& metadata) {
  const auto file = bytes_in_memory(pt_bytes({{"a", tensor}}));
  const ZipReader zip(*file);
  std::string pickle = zip.read(*zip.find("archive/data.pkl"));
  pickle.insert(pickle.rfind("tR"), metadata);
  return zip_bytes({{"archive/data.pkl", pickle}, {"archive/data/0", zip.read(*zip.find("archive/data/0"))}});
}

TEST_CASE("A tensor that torch.save calls conjugate or negative has the numbers that it had there") {
  const std::string conj = "X\4\0\0\0conj\x88"s, neg = "X\3\0\0\0neg\x88"s, not_neg = "X\3\0\0\0neg\x89"s;
  const auto read = [](const at::Tensor& tensor, const std::string& metadata) {
    return open_pt(pt_with_metadata(tensor, metadata)).read("a");
  };
  const at::Tensor x = at::arange(1, 5, at::kFloat), z = at::complex(x, x.add(1));
  CHECK(read(x, "}").equal(x));
  CHECK(read(x, "N").equal(x));
  CHECK(read(x, "}" + not_neg + "s").equal(x));
  CHECK(read(x, "}" + neg + "s").equal(-x));
  CHECK(read(z, "}" + conj + "s").equal(z.conj()));
  CHECK(read(z, "}" + neg + "s").equal(-z));
  CHECK(read(z, "}(" + conj + neg + "u").equal(-z.conj()));
  CHECK(read(z.to(at::kComplexDouble), "}" + conj + "s").equal(z.to(at::kComplexDouble).conj()));
  CHECK(read(x.to(at::kLong), "}" + neg + "s").equal(-x.to(at::kLong)));
  CHECK_FALSE(read(z, "}" + conj + "s").is_conj());  // bytes and numbers agree
  CHECK_FALSE(read(x, "}" + neg + "s").is_neg());
}

TEST_CASE("Metadata of a tensor that this version does not know are an error, not passed over") {
  const auto complaint = [](const at::Tensor& tensor, const std::string& metadata) {
    return error_of([&] { open_pt(pt_with_metadata(tensor, metadata)).read_all(); });
  };
  const std::string conj = "X\4\0\0\0conj\x88"s, neg = "X\3\0\0\0neg\x88"s, zero = "X\4\0\0\0zero\x88"s;
  const at::Tensor x = at::ones({2});
  CHECK(complaint(x, "}" + zero + "s").find("metadata zero of a tensor") != std::string::npos);
  CHECK(complaint(x, "}X\3\0\0\0negK\1s"s).find("metadata neg of a tensor") != std::string::npos);
  CHECK(complaint(x, "K\1"s).find("metadata of a tensor that are no dict") != std::string::npos);
  CHECK(complaint(x, "}" + conj + "s").find("a conjugate tensor of F32") != std::string::npos);
  CHECK(complaint(x > 0, "}" + neg + "s").find("a negative tensor of BOOL") != std::string::npos);
}

TEST_CASE("Which format a file has is told apart although their first bytes may be equal") {
  const auto is_pt = [](const std::string& bytes) { return is_pt_file(*bytes_in_memory(bytes)); };
  CHECK(is_pt(pt_bytes({{"a", at::ones({3})}})));
  for (const char protocol : {2, 3, 4, 5}) {
    CAPTURE(int{protocol});
    // Opcodes of torch.save: an integer, from protocol 4 on in a frame.
    const std::string frame = protocol < 4 ? "" : "\x95\x0d\0\0\0\0\0\0\0"s;
    CHECK(is_pt("\x80"s + protocol + frame + "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."));
  }
  // A header whose length is spelled as those: its low byte 0x80 and the next 2 to 5, or "PK".
  for (const std::size_t length : {0x280, 0x380, 0x480, 0x580, 0x4B50}) {
    CAPTURE(length);
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    const std::string bytes = safetensors_bytes(header, "\7");
    CHECK_FALSE(is_pt(bytes));
    const Folder folder;
    std::ofstream(folder / "w.safetensors", std::ios::binary) << bytes;
    CHECK(read_weights(folder / "w.safetensors").at(0).second.item<int>() == 7);
  }
  CHECK_FALSE(is_pt(""));
  CHECK_FALSE(is_pt("P"));
}

}  // namespace
}  // namespace composer::test::pt_file_test
