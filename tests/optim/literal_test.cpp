// Lion, LAMB, Adafactor and Muon against their papers' formulas, written number by number.
#include <cmath>
#include <functional>
#include <vector>

#include "composer/core/error.h"
#include "tests/optim/support.h"
#include "tests/support/doctest.h"

namespace composer::tests::literal_test {
namespace {

using Row = std::vector<double>;

// A matrix of `rows` x `columns` with its state, by plain loops.
struct Literal {
  std::size_t rows, columns;
  Row p, m, v, row, column;
  int t = 0;

  explicit Literal(const at::Tensor& tensor)
      : rows(tensor.dim() < 2 ? 1 : static_cast<std::size_t>(tensor.size(0))),
        columns(static_cast<std::size_t>(tensor.numel()) / rows),
        p(numbers(tensor)),
        m(p.size()),
        v(p.size()),
        row(rows),
        column(columns) {}

  static Row numbers(const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().contiguous().view(-1);
    return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
  }
};

using Step = std::function<void(Literal& x, const Row& g)>;

double norm(const Row& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}
double rms(const Row& x) { return norm(x) / std::sqrt(static_cast<double>(x.size())); }

void lion_step(Literal& x, const Row& g) {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, decay = 0.1;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double c = beta1 * x.m[i] + (1 - beta1) * g[i];
    x.p[i] -= lr * ((c > 0) - (c < 0) + decay * x.p[i]);
    x.m[i] = beta2 * x.m[i] + (1 - beta2) * g[i];
  }
}

void lamb_step(Literal& x, const Row& g) {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, decay = 0.1;
  ++x.t;
  Row r(g.size());
  for (std::size_t i = 0; i < g.size(); ++i) {
    x.m[i] = beta1 * x.m[i] + (1 - beta1) * g[i];
    x.v[i] = beta2 * x.v[i] + (1 - beta2) * g[i] * g[i];
    const double m = x.m[i] / (1 - std::pow(beta1, x.t)), v = x.v[i] / (1 - std::pow(beta2, x.t));
    r[i] = m / (std::sqrt(v) + eps) + decay * x.p[i];
  }
  const double trust = norm(x.p) > 0 && norm(r) > 0 ? norm(x.p) / norm(r) : 1;
  for (std::size_t i = 0; i < g.size(); ++i) x.p[i] -= lr * trust * r[i];
}

void adafactor_step(Literal& x, const Row& g, bool matrix) {
  const double lr = 0.05, eps1 = 1e-30, eps2 = 1e-3, threshold = 1, decay = 0.01;
  const double beta = 1 - std::pow(++x.t, -0.8);
  const double rate = std::min(lr, 1 / std::sqrt(x.t));
  Row u(g.size());
  if (matrix) {
    for (std::size_t r = 0; r < x.rows; ++r) {
      double mean = 0;
      for (std::size_t c = 0; c < x.columns; ++c) mean += g[r * x.columns + c] * g[r * x.columns + c] + eps1;
      x.row[r] = beta * x.row[r] + (1 - beta) * mean / static_cast<double>(x.columns);
    }
    for (std::size_t c = 0; c < x.columns; ++c) {
      double mean = 0;
      for (std::size_t r = 0; r < x.rows; ++r) mean += g[r * x.columns + c] * g[r * x.columns + c] + eps1;
      x.column[c] = beta * x.column[c] + (1 - beta) * mean / static_cast<double>(x.rows);
    }
  }
  double mean_row = 0;
  for (const double one : x.row) mean_row += one / static_cast<double>(x.rows);
  for (std::size_t i = 0; i < g.size(); ++i) {
    x.v[i] = matrix ? x.row[i / x.columns] * x.column[i % x.columns] / mean_row
                    : beta * x.v[i] + (1 - beta) * (g[i] * g[i] + eps1);
    u[i] = g[i] / std::sqrt(x.v[i]);
  }
  const double clip = std::max(1.0, rms(u) / threshold);
  const double scale = rate * std::max(eps2, rms(x.p));
  for (double& one : x.p) one *= 1 - lr * decay;
  for (std::size_t i = 0; i < g.size(); ++i) x.p[i] -= scale * u[i] / clip;
}

Row product(const Row& a, const Row& b, std::size_t n, std::size_t k, std::size_t m) {
  Row c(n * m);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t l = 0; l < k; ++l)
      for (std::size_t j = 0; j < m; ++j) c[i * m + j] += a[i * k + l] * b[l * m + j];
  return c;
}
Row transposed(const Row& a, std::size_t rows, std::size_t columns) {
  Row b(a.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) b[c * rows + r] = a[r * columns + c];
  return b;
}

void muon_step(Literal& x, const Row& g) {
  const double lr = 0.02, momentum = 0.95, decay = 0.1;
  Row d(g.size());
  for (std::size_t i = 0; i < g.size(); ++i) {
    x.m[i] = momentum * x.m[i] + g[i];
    d[i] = g[i] + momentum * x.m[i];
  }
  const double length = norm(d);
  for (double& one : d) one /= length;
  for (int step = 0; step < 5; ++step) {
    const Row a = product(d, transposed(d, x.rows, x.columns), x.rows, x.columns, x.rows);
    const Row a2 = product(a, a, x.rows, x.rows, x.rows);
    Row factor(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) factor[i] = -4.7750 * a[i] + 2.0315 * a2[i];
    const Row change = product(factor, d, x.rows, x.rows, x.columns);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = 3.4445 * d[i] + change[i];
  }
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(x.rows, x.columns)));
  for (std::size_t i = 0; i < g.size(); ++i) x.p[i] = (1 - lr * decay) * x.p[i] - lr * scale * d[i];
}

double worst(const optim::AnyOptimizer& any, at::IntArrayRef shape, const Step& step, at::ScalarType type) {
  at::manual_seed(5);
  at::Tensor p = at::randn(shape, type).set_requires_grad(true);
  Literal literal(p.to(at::kDouble));
  const auto optimizer = any.make({{"p", p}});
  for (int i = 0; i < 12; ++i) {
    set_gradients({p}, static_cast<std::uint64_t>(i));
    step(literal, Literal::numbers(p.grad().to(at::kDouble)));
    optimizer->step();
  }
  double largest = 0;
  const Row got = Literal::numbers(p.to(at::kDouble));
  for (std::size_t i = 0; i < got.size(); ++i) largest = std::max(largest, std::abs(got[i] - literal.p[i]));
  return largest;
}

struct Case {
  const char* name;
  optim::AnyOptimizer optimizer;
  std::vector<std::int64_t> shape;
  Step step;
};

std::vector<Case> cases() {
  const auto lion = optim::lion({.lr = 0.01, .weight_decay = 0.1});
  const auto lamb = optim::lamb({.lr = 0.01, .weight_decay = 0.1});
  const auto adafactor = optim::adafactor({.lr = 0.05, .relative_step = true, .weight_decay = 0.01});
  const auto muon = optim::muon({.lr = 0.02});
  const auto of = [](bool matrix) { return [matrix](Literal& x, const Row& g) { adafactor_step(x, g, matrix); }; };
  return {{"lion", lion, {7, 5}, lion_step},
          {"lamb", lamb, {7, 5}, lamb_step},
          {"adafactor, a matrix", adafactor, {7, 5}, of(true)},
          {"adafactor, a vector", adafactor, {9}, of(false)},
          {"muon, wide", muon, {4, 9}, muon_step},
          {"muon, tall", muon, {9, 4}, muon_step},
          {"muon, a convolution", muon, {4, 2, 3, 3}, muon_step}};
}

}  // namespace

TEST_CASE("Lion, LAMB, Adafactor and Muon do what their papers say") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    CHECK(worst(c.optimizer, c.shape, c.step, at::kDouble) < 1e-9);
    CHECK(worst(c.optimizer, c.shape, c.step, at::kFloat) < 1e-3);
  }
}

TEST_CASE("LAMB does not divide by the norm of a tensor of zeros") {
  at::Tensor p = at::zeros({3}).set_requires_grad(true);
  const auto optimizer = optim::lamb({.lr = 0.5}).make({{"p", p}});
  p.mutable_grad() = at::zeros({3});
  optimizer->step();
  CHECK(at::equal(p.detach(), at::zeros({3})));
  p.mutable_grad() = at::ones({3});
  optimizer->step();
  CHECK(p.lt(0).all().item<bool>());
}

// In bfloat16 where the processor computes with it, in float32 elsewhere.
TEST_CASE(
    "Muon moves large matrices along all singular directions about alike, as far as in float64 to a few percent") {
  for (const auto& [rows, columns] : {std::pair(128, 320), std::pair(320, 128), std::pair(160, 160)}) {
    CAPTURE(rows);
    const auto moved = [rows = rows, columns = columns](at::ScalarType type) {
      at::manual_seed(3);
      const at::Tensor p = at::zeros({rows, columns}, type).set_requires_grad(true);
      const auto optimizer = optim::muon({.lr = 1, .weight_decay = 0}).make({{"p", p}});
      p.mutable_grad() = at::randn({rows, columns}, at::kDouble).to(type);
      optimizer->step();
      return p.detach().to(at::kDouble).div(-0.2 * std::sqrt(std::max(rows, columns)));
    };
    const at::Tensor as_float = moved(at::kFloat), as_double = moved(at::kDouble);
    const at::Tensor singular = at::linalg_svdvals(as_float);
    CHECK(singular.max().item<double>() < 1.3);
    CHECK(singular.median().item<double>() > 0.6);
    CHECK((as_float - as_double).norm().item<double>() < 0.05 * as_double.norm().item<double>());
  }
}

TEST_CASE("Muon leaves vectors, and what is named, to AdamW") {
  const auto list = random_parameters(at::kDouble), same = random_parameters(at::kDouble);
  const auto muon = optim::muon({.lr = 0.01, .weight_decay = 0.1, .adamw_for = {"layer0.*"}}).make(list);
  const auto adamw = optim::adamw({.lr = 0.01, .beta2 = 0.95, .weight_decay = 0.1}).make(same);
  train(*muon, tensors_of(list), 0, 5);
  train(*adamw, tensors_of(same), 0, 5);
  for (std::size_t i = 0; i < list.size(); ++i) {
    CAPTURE(list[i].name);
    const bool by_adamw = kShapes[i].size() < 2 || i == 0;
    CHECK((difference({list[i].tensor}, {same[i].tensor}) < 1e-14) == by_adamw);
  }
  CHECK_THROWS_WITH_AS(optim::muon({.adamw_for = {"head.*"}}).make(list),
                       "muon: adamw_for: no parameter matches head.*", ConfigError);
}

TEST_CASE("Lion, LAMB, Adafactor and Muon skip steps, and go on from a loaded state to the bit") {
  const optim::AnyOptimizer list[] = {optim::lion(), optim::lamb(), optim::adafactor(), optim::muon()};
  for (const optim::AnyOptimizer& any : list) {
    const auto whole = random_parameters(at::kFloat), part = random_parameters(at::kFloat);
    train(*any.make(whole), tensors_of(whole), 0, 6);
    const auto first = std::dynamic_pointer_cast<optim::NamedOptimizer>(any.make(part));
    train(*first, tensors_of(part), 0, 3);
    set_gradients(tensors_of(part), 99);
    first->step_unless(at::ones({}));
    const auto second = std::dynamic_pointer_cast<optim::NamedOptimizer>(any.make(part));
    second->load_state_tensors(first->state_tensors());
    train(*second, tensors_of(part), 3, 6);
    CHECK(equal(tensors_of(whole), tensors_of(part)));
  }
}

TEST_CASE("Adafactor leaves no weight without a number where rows have no gradient, also if denormals are flushed") {
  struct Flushed {
    explicit Flushed(bool on) { at::globalContext().setFlushDenormal(on); }
    Flushed(const Flushed&) = delete;
    Flushed& operator=(const Flushed&) = delete;
    ~Flushed() { at::globalContext().setFlushDenormal(false); }
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const double scale : {1.0, 1e4, 1e5, 1e15})
      for (const bool flush : {false, true}) {
        CAPTURE(type);
        CAPTURE(scale);
        CAPTURE(flush);
        const Flushed flushed(flush);
        at::manual_seed(1);
        const at::Tensor p = at::randn({20, 8}, type).requires_grad_();
        const at::Tensor before = p.detach().clone();
        const auto optimizer = optim::adafactor({.lr = 1e-2}).make({{"embedding", p}});
        for (int i = 0; i < 3; ++i) {
          p.mutable_grad() = at::randn({20, 8}).mul(scale).to(type);
          p.mutable_grad()[0].zero_();
          optimizer->step();
        }
        CHECK(p.isfinite().all().item<bool>());
        CHECK(p[0].equal(before[0]));
        CHECK_FALSE(p[1].equal(before[1]));
      }
}

TEST_CASE("Adafactor steps float16 matrices as float ones, and leaves no float16 vector without a number") {
  for (const bool matrix : {true, false})
    for (const double scale : {1e-4, 1.0, 1e4}) {
      if (!matrix && scale > 1) continue;  // the squares overflow in the state, as in PyTorch
      CAPTURE(matrix);
      CAPTURE(scale);
      at::manual_seed(1);
      std::vector<at::Tensor> trained;
      const at::Tensor first = at::randn({6, 4}).to(at::kHalf);
      at::Tensor gradient = at::randn({6, 4}).mul(scale).to(at::kHalf);
      gradient[0].zero_();
      gradient.select(1, 2).zero_();
      for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
        const at::Tensor p = (matrix ? first : first.flatten()).to(type, false, true).requires_grad_();
        const auto optimizer = optim::adafactor({.lr = 0.1}).make({{"p", p}});
        for (const double size : {1.0, 0.0, -0.5}) {
          p.mutable_grad() = gradient.mul(size).view(p.sizes()).to(type);
          optimizer->step();
        }
        trained.push_back(p.detach().to(at::kFloat));
      }
      CHECK(trained[1].isfinite().all().item<bool>());
      if (matrix) CHECK(at::allclose(trained[1], trained[0], 3e-3, 3e-3));
      CHECK_FALSE(at::allclose(trained[1], first.to(at::kFloat).view(trained[1].sizes()), 3e-3, 3e-3));
    }
}

TEST_CASE("Options of Lion, LAMB, Adafactor and Muon that cannot be are refused") {
  CHECK_THROWS_WITH_AS(optim::lion({.lr = -1}), "lion: lr must be >= 0, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::lion({.beta1 = 1}), "lion: beta1 must be in [0, 1), got 1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::lion({.weight_decay = -1}), "lion: weight_decay must be >= 0, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::lamb({.eps = -1}), "lamb: eps must be >= 0, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::adafactor({.eps1 = 0}), "adafactor: eps1 must be > 0, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(optim::adafactor({.clip_threshold = 0}), "adafactor: clip_threshold must be > 0, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(optim::adafactor({.decay = -1}), "adafactor: decay must be > 0, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::muon({.momentum = 1}), "muon: momentum must be in [0, 1), got 1", ConfigError);
  CHECK_THROWS_WITH_AS(optim::muon({.ns_steps = 0}), "muon: ns_steps must be 1 to 100, got 0", ConfigError);
}

}  // namespace composer::tests::literal_test
