// Tensors of memory that a program has, and who owns it.
#include "composer/data/memory.h"

#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/eigen.h"
#include "composer/data/in_memory.h"
#include "composer/data/opencv.h"
#include "composer/data/torch_dataset.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

#if __has_include(<eigen3/Eigen/Core>)
#include <eigen3/Eigen/Core>
#endif

namespace composer::memory_test {

using data::from;
using data::view;
using test::numbers_of;

namespace {

template <class T>
concept Viewable = requires(T matrix) {
  view(std::forward<T>(matrix));
};

std::vector<float> counted(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

// A matrix with the members of Eigen's: as a Map with strides, by columns or by rows.
template <bool kByRows>
struct Matrix {
  using Scalar = float;
  static constexpr bool IsRowMajor = kByRows, IsVectorAtCompileTime = false;
  const float* first;
  long height, width, inner, outer;
  long rows() const { return height; }
  long cols() const { return width; }
  long innerStride() const { return inner; }
  long outerStride() const { return outer; }
  const float* data() const { return first; }
};

// An image with the members of cv::Mat that are read, which counts those who keep it.
struct Mat {
  int dims = 2, rows = 0, cols = 0;
  unsigned char* data = nullptr;
  struct Step {
    std::size_t bytes = 0;
    std::size_t operator[](int) const { return bytes; }
  } step;
  std::shared_ptr<std::vector<unsigned char>> memory;
  int kind = 0, planes = 0;
  int depth() const { return kind; }
  int channels() const { return planes; }
};

// Rows of `cols` pixels of 8 bits, with `padding` bytes after each.
Mat image(int rows, int cols, int channels, int padding) {
  const auto step = static_cast<std::size_t>(cols * channels + padding);
  auto memory = std::make_shared<std::vector<unsigned char>>(static_cast<std::size_t>(rows) * step);
  std::iota(memory->begin(), memory->end(), static_cast<unsigned char>(0));
  return {2, rows, cols, memory->data(), {step}, memory, 0, channels};
}

struct Example {
  at::Tensor data;
  std::int64_t target;
};
struct OnlyData {
  at::Tensor data;
};
// As torch::data's are: get() is not const, size() is optional.
struct TorchSet {
  std::int64_t calls = 0;
  std::optional<std::size_t> size() const { return 3; }
  Example get(std::size_t index) { return {at::full({2}, static_cast<std::int64_t>(index)), ++calls}; }
};
struct Mapped {
  std::optional<std::size_t> size() const { return 4; }
  std::vector<OnlyData> get_batch(const std::vector<std::size_t>& indices) {
    std::vector<OnlyData> batch;
    for (const std::size_t index : indices) batch.push_back({at::scalar_tensor(static_cast<std::int64_t>(index))});
    return batch;
  }
};

}  // namespace

TEST_CASE("A vector that is moved becomes the tensor's memory, which lives as long as the tensor") {
  std::vector<float> values = counted(12);
  const float* const memory = values.data();
  at::Tensor tensor = from(std::move(values), {-1, 3});
  CHECK(tensor.const_data_ptr<float>() == memory);
  CHECK(tensor.equal(at::arange(12, at::kFloat).view({4, 3})));
  const at::Tensor row = tensor[2];
  tensor.reset();
  CHECK(row.equal(at::tensor({6.0F, 7.0F, 8.0F})));

  const std::vector<float> kept = counted(3);
  const at::Tensor copy = from(kept);
  CHECK(copy.const_data_ptr<float>() != kept.data());
  CHECK(copy.sizes() == at::IntArrayRef{3});
}

TEST_CASE("Numbers of each kind keep their type, arrays and rows become columns") {
  CHECK((from(std::vector<double>{1}).scalar_type() == at::kDouble));
  CHECK((from(std::vector<int>{1}).scalar_type() == at::kInt));
  CHECK((from(std::vector<long long>{1}).scalar_type() == at::kLong));
  CHECK((from(std::vector<long>{1}).scalar_type() == at::kLong));
  CHECK((from(std::vector<std::uint8_t>{1}).scalar_type() == at::kByte));
  CHECK((from(std::vector<std::int8_t>{1}).scalar_type() == at::kChar));
  CHECK(from(std::vector<bool>{true, false}).equal(at::arange(2).eq(0)));
  CHECK(from(std::vector<bool>{true, false}, {-1, 1}).equal(at::arange(2).eq(0).view({2, 1})));
  CHECK_THROWS_WITH_AS(from(std::vector<bool>{true, false}, {3}), "from: 2 numbers cannot have the shape [3]",
                       DataError);
  CHECK(from(std::vector<bool>()).numel() == 0);
  CHECK(from(std::vector<float>{}).sizes() == at::IntArrayRef{0});
  CHECK(from(std::vector<std::array<std::int64_t, 2>>{{1, 2}, {3, 4}, {5, 6}}).equal(at::arange(1, 7).view({3, 2})));
  CHECK(from(std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 4}, {5, 6}}).equal(at::arange(1, 7).view({3, 2})));
  CHECK(from(std::vector<std::vector<bool>>{{true}, {false}}).equal(at::arange(2).eq(0).view({2, 1})));
  CHECK(from(std::vector<std::vector<float>>{}).sizes() == at::IntArrayRef{0, 0});
  CHECK(from(std::vector<std::vector<std::array<float, 2>>>{{{1, 2}}, {{3, 4}}}).sizes() == at::IntArrayRef{2, 1, 2});
}

TEST_CASE("A view shares memory, and keeps what owns it") {
  std::vector<float> values = counted(6);
  const at::Tensor shared = view(values, {2, 3});
  CHECK(shared.const_data_ptr<float>() == values.data());
  values[4] = 40;
  CHECK(shared[1][1].item<float>() == 40);

  auto owner = std::make_shared<std::vector<std::int64_t>>(std::vector<std::int64_t>{1, 2, 3, 4});
  const std::weak_ptr<std::vector<std::int64_t>> alive = owner;
  std::optional<at::Tensor> tensor = view(std::span<const std::int64_t>(*owner), {2, 2}, owner);
  owner.reset();
  CHECK_FALSE(alive.expired());
  auto loader = data::in_memory(Batch(*tensor), {.batch_size = 1, .shuffle = false});
  tensor.reset();
  std::optional<Batch> batch = loader->next();
  loader.reset();
  CHECK(numbers_of(batch->at("input")) == std::vector<std::int64_t>{1, 2});
  CHECK_FALSE(alive.expired());
  batch.reset();
  CHECK(alive.expired());
}

TEST_CASE("A shape that does not fit the numbers, and rows of several lengths, are errors") {
  const std::vector<float> six = counted(6);
  CHECK_THROWS_WITH_AS(from(six, {4, 2}), "from: 6 numbers cannot have the shape [4, 2]", DataError);
  CHECK_THROWS_WITH_AS(view(six, {-1, 4}), "view: 6 numbers cannot have the shape [-1, 4]", DataError);
  CHECK_THROWS_AS(from(six, {-1, -1}), DataError);
  CHECK_THROWS_AS(from(six, {-2, -3}), DataError);
  CHECK_THROWS_AS(from(six, {-1, 0}), DataError);
  CHECK_THROWS_AS(from(six, {1L << 62, 1L << 62}), DataError);
  CHECK_THROWS_WITH_AS(from(std::vector<std::vector<float>>{{1, 2}, {3}}),
                       "from: row 1 has 1 numbers, and row 0 has 2; all rows must have the same number", DataError);
}

TEST_CASE("Matrices of either order are tensors of their rows and columns, by strides or copied") {
  const std::vector<float> values = counted(24);
  const at::Tensor all = at::arange(24, at::kFloat);
  const Matrix<false> by_columns{values.data() + 1, 3, 4, 1, 5};
  const Matrix<true> by_rows{values.data(), 4, 3, 2, 6};
  CHECK(view(by_columns).equal(all.as_strided({3, 4}, {1, 5}, 1)));
  CHECK(view(by_columns).const_data_ptr<float>() == values.data() + 1);
  CHECK(view(by_rows).equal(all.as_strided({4, 3}, {6, 2})));
  CHECK(from(by_columns).equal(view(by_columns)));
  CHECK(from(by_columns).is_contiguous());
  CHECK_FALSE(from(by_rows).is_alias_of(view(by_rows)));
  CHECK(view(Matrix<true>{nullptr, 0, 3, 1, 3}).sizes() == at::IntArrayRef{0, 3});
#if __has_include(<eigen3/Eigen/Core>)
  Eigen::MatrixXf matrix = Eigen::MatrixXf::Random(3, 5);
  const auto is_equal = [](const at::Tensor& tensor, const auto& expected) {
    bool equal = tensor.numel() == expected.size();
    for (Eigen::Index row = 0; row < expected.rows(); ++row)
      for (Eigen::Index column = 0; column < expected.cols(); ++column)
        equal = equal && tensor.reshape({expected.rows(), expected.cols()})[row][column].template item<float>() ==
                             expected(row, column);
    return equal;
  };
  CHECK(is_equal(from(matrix), matrix));
  static_assert(Viewable<Eigen::MatrixXf&> && Viewable<const Eigen::MatrixXf&>);
  static_assert(Viewable<Eigen::Map<Eigen::MatrixXf>> && Viewable<Eigen::Block<Eigen::MatrixXf>>);
  static_assert(!Viewable<Eigen::MatrixXf> && !Viewable<Eigen::Vector3d>);  // would be gone at once
  CHECK(is_equal(view(matrix.block(1, 2, 2, 3)), matrix.block(1, 2, 2, 3)));
  CHECK(is_equal(from(matrix.row(1)), matrix.row(1)));
  CHECK(from(matrix.row(1)).dim() == 1);
  CHECK(is_equal(from((matrix * matrix.transpose()).eval()), (matrix * matrix.transpose()).eval()));
  const Eigen::Matrix<float, 2, 3, Eigen::RowMajor> rows = Eigen::MatrixXf::Random(2, 3);
  CHECK(is_equal(view(rows), rows));
  CHECK(view(rows).is_contiguous());
  matrix(2, 4) = 17;
  CHECK(view(matrix)[2][4].item<float>() == 17);
  CHECK((from(Eigen::VectorXd(Eigen::VectorXd::Zero(4))).scalar_type() == at::kDouble));
#endif
}

TEST_CASE("An image is copied by channels, or shared by pixels together with its memory") {
  for (const int padding : {0, 3}) {
    Mat colour = image(4, 5, 3, padding);
    const at::Tensor pixels = view(colour);
    CHECK(pixels.sizes() == at::IntArrayRef{4, 5, 3});
    CHECK(pixels.is_contiguous() == (padding == 0));
    for (const int row : {0, 3})
      for (const int channel : {0, 2}) CHECK(pixels[row][1][channel].item<int>() == row * (15 + padding) + 3 + channel);
    CHECK(from(colour).equal(pixels.permute({2, 0, 1})));
    CHECK(from(colour).is_contiguous());
    CHECK(data::from_bgr(colour).equal(pixels.permute({2, 0, 1}).flip(0)));
    const std::weak_ptr<std::vector<unsigned char>> alive = colour.memory;
    colour = {};
    CHECK_FALSE(alive.expired());
    CHECK(pixels[3][4][2].item<int>() == 3 * (15 + padding) + 14);
  }
  const Mat with_alpha = image(2, 2, 4, 0);
  CHECK(
      data::from_bgr(with_alpha).equal(view(with_alpha).permute({2, 0, 1}).index_select(0, at::tensor({2, 1, 0, 3}))));
  Mat floats = image(2, 3, 4, 4);  // the bytes of one channel of 32 bits
  floats.kind = 5;
  floats.planes = 1;
  CHECK((from(floats).scalar_type() == at::kFloat));
  CHECK(from(floats).sizes() == at::IntArrayRef{1, 2, 3});

  CHECK_THROWS_WITH_AS(from(Mat{}), doctest::Contains("cv::Mat: the image is empty; cv::imread() returns"), DataError);
  CHECK_THROWS_WITH_AS(data::from_bgr(image(2, 2, 1, 0)), doctest::Contains("from_bgr: the image has 1 channels"),
                       DataError);
  Mat odd = image(2, 2, 3, 0);
  odd.dims = 3;
  CHECK_THROWS_WITH_AS(view(odd), doctest::Contains("has 3 dimensions"), DataError);
  odd = image(2, 2, 3, 0);
  odd.kind = 8;
  CHECK_THROWS_WITH_AS(view(odd), doctest::Contains("unknown depth 8"), DataError);
  odd = image(2, 2, 3, 1);
  odd.kind = 2;
  CHECK_THROWS_WITH_AS(view(odd), doctest::Contains("a step of 7 bytes"), DataError);
}

TEST_CASE("A data set of torch::data is read by its examples, mapped or not") {
  const data::SampleSource set = data::adapt(TorchSet{});
  CHECK(set.size == 3);
  const data::Sample sample = set.get(2, RandomStream(0));
  CHECK(numbers_of(sample.at("input")) == std::vector<std::int64_t>{2, 2});
  CHECK(numbers_of(sample.at("target")) == std::vector<std::int64_t>{1});
  const auto loader = data::map_style(data::adapt(Mapped{}), {.batch_size = 4, .shuffle = false, .num_workers = 1});
  const Batch batch = *loader->next();
  CHECK(batch.size() == 1);
  CHECK(batch["input"].equal(at::arange(4, at::kFloat)));
}

}  // namespace composer::memory_test
