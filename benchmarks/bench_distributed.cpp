// What does averaging gradients cost: with one rank, and with two processes during the backward pass or after it?
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "benchmarks/bench.h"
#include "composer/core/error.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/ordered_sum.h"
#include "composer/dist/world.h"

namespace composer::bench {
namespace {

constexpr int kRanks = 2;

struct Net {
  std::string name;
  dist::DataParallel::Named parameters;
  at::Tensor input, target;
  std::function<at::Tensor(const Net&, const at::Tensor& input)> forward;
  int rounds, calls;

  const at::Tensor& tensor(std::size_t i) const { return parameters[i].second; }
  void add(std::vector<std::int64_t> shape) {
    const double scale =
        shape.size() > 1 ? 1 / std::sqrt(static_cast<double>(shape[1] * (shape.size() > 2 ? 9 : 1))) : 0;
    parameters.emplace_back(join("parameter ", parameters.size()), at::randn(shape).mul_(scale).requires_grad_());
  }
};

// 8 layers of 1024 units: 8.4 M parameters with little work for each.
Net mlp(int rank) {
  Net net{"MLP, 8.4 M parameters", {}, {}, {}, {}, 25, 1};
  for (int layer = 0; layer < 8; ++layer) {
    net.add({1024, 1024});
    net.add({1024});
  }
  net.add({10, 1024});
  net.forward = [](const Net& of, const at::Tensor& input) {
    at::Tensor x = input;
    for (std::size_t i = 0; i < 16; i += 2) x = at::relu(at::linear(x, of.tensor(i), of.tensor(i + 1)));
    return at::linear(x, of.tensor(16));
  };
  at::manual_seed(10 + static_cast<std::uint64_t>(rank));
  net.input = at::randn({64, 1024});
  net.target = at::randint(0, 10, {64});
  return net;
}

// Three convolutions and two linear layers: 0.09 M parameters.
Net cnn(int rank) {
  Net net{"CNN, 0.09 M parameters", {}, {}, {}, {}, 25, 10};
  net.add({16, 3, 3, 3});
  net.add({32, 16, 3, 3});
  net.add({64, 32, 3, 3});
  net.add({64, 1024});
  net.add({10, 64});
  net.forward = [](const Net& of, const at::Tensor& input) {
    at::Tensor x = at::relu(at::conv2d(input, of.tensor(0), {}, 1, 1));
    x = at::relu(at::conv2d(x, of.tensor(1), {}, 2, 1));
    x = at::relu(at::conv2d(x, of.tensor(2), {}, 2, 1));
    return at::linear(at::relu(at::linear(x.flatten(1), of.tensor(3))), of.tensor(4));
  };
  at::manual_seed(10 + static_cast<std::uint64_t>(rank));
  net.input = at::randn({16, 3, 16, 16});
  net.target = at::randint(0, 10, {16});
  return net;
}

std::vector<Net> nets(int rank) {
  at::manual_seed(1);
  std::vector<Net> list{cnn(rank)};
  at::manual_seed(2);
  list.push_back(mlp(rank));
  return list;
}

void clear(const Net& net) {
  for (const auto& [name, tensor] : net.parameters) tensor.mutable_grad().reset();
}

std::vector<at::Tensor> gradients(const Net& net) {
  std::vector<at::Tensor> list;
  for (const auto& [name, tensor] : net.parameters) list.push_back(tensor.grad());
  return list;
}

at::Tensor loss_of(const Net& net, const at::Tensor& out) { return at::cross_entropy_loss(out, net.target); }

void alone_step(const Net& net) {
  clear(net);
  loss_of(net, net.forward(net, net.input)).backward();
}

void parallel_step(const Net& net, dist::DataParallel& parallel) {
  clear(net);
  parallel.before_forward();
  const at::Tensor out = net.forward(net, net.input);
  parallel.before_backward({out});
  loss_of(net, out).backward();
  parallel.after_backward();
}

void flat_step(const Net& net, dist::World& world) {
  alone_step(net);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& gradient : gradients(net)) parts.push_back(gradient.view({-1}));
  const at::Tensor flat = at::cat(parts);
  world.sum(flat);
  flat.div_(world.size());
  std::int64_t at = 0;
  for (const at::Tensor& gradient : gradients(net)) {
    gradient.copy_(flat.narrow(0, at, gradient.numel()).view_as(gradient));
    at += gradient.numel();
  }
}

void ordered_step(const Net& net, dist::OrderedSum& sum) {
  alone_step(net);
  sum.add(gradients(net));
  const std::vector<at::Tensor> sums = sum.finish();
  for (std::size_t i = 0; i < sums.size(); ++i) net.tensor(i).mutable_grad() = sums[i].div_(kRanks);
}

// Throws unless the step computes these gradients.
void check(const Net& net, const std::vector<at::Tensor>& expected, const char* name) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!at::allclose(net.tensor(i).grad(), expected[i], 1e-4, 1e-6)) throw Error(name, ": other gradients");
}

// Prints wall time if ranks wait for each other, otherwise CPU time.
void print(const std::string& group, bool wall, const std::vector<Contender>& contenders,
           const std::vector<Series>& series, nlohmann::ordered_json& results) {
  std::printf("%s\n%-34s %12s %12s %9s %17s\n", group.c_str(), "", "us (wall)", "us (cpu)", wall ? "of wall" : "of cpu",
              "(half of them)");
  const auto values = [&](std::size_t i) { return wall ? series[i].wall : series[i].cpu; };
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    std::vector<double> ratio;
    ratio.reserve(series[i].wall.size());
    for (std::size_t round = 0; round < series[i].wall.size(); ++round)
      ratio.push_back(values(i)[round] / values(0)[round]);
    std::printf("  %-32s %12.1f %12.1f %9.4f %8.4f %8.4f\n", contenders[i].name.c_str(), median(series[i].wall),
                median(series[i].cpu), median(ratio), quantile(ratio, 0.25), quantile(ratio, 0.75));
    results[group + ", " + contenders[i].name] = {{"value", median(values(i))}, {"unit", "us"}};
  }
  std::printf("\n");
}

Contender contender(const char* name, std::function<void()> step) {
  return {name, [step = std::move(step)](int calls) {
            for (int i = 0; i < calls; ++i) step();
          }};
}

int rounds_of(const Net& net, const Options& options) {
  return std::max(3, static_cast<int>(net.rounds * options.effort));
}

void measure_one_rank(const Net& net, const Options& options, nlohmann::ordered_json& results) {
  const std::string group = net.name + ", 1 rank";
  if (group.find(options.only) == std::string::npos) return;
  dist::DataParallel parallel(dist::World::alone(), net.parameters, {});
  const std::vector<Contender> contenders = {contender("without DataParallel", [&] { alone_step(net); }),
                                             contender("DataParallel", [&] { parallel_step(net, parallel); })};
  print(group, /*wall=*/false, contenders, take_turns(contenders, rounds_of(net, options), net.calls), results);
}

void measure_ranks(const Net& net, const std::shared_ptr<dist::World>& world, const Options& options,
                   nlohmann::ordered_json& results) {
  const std::string group = join(net.name, ", ", kRanks, " ranks");
  if (group.find(options.only) == std::string::npos) return;
  dist::DataParallel parallel(world, net.parameters, {});
  std::vector<at::Tensor> like;
  for (const auto& [name, tensor] : net.parameters) like.push_back(tensor.detach());
  dist::OrderedSum ordered(world, kRanks, like);

  flat_step(net, *world);
  std::vector<at::Tensor> expected;
  for (const at::Tensor& gradient : gradients(net)) expected.push_back(gradient.clone());
  for (int i = 0; i < 2; ++i) parallel_step(net, parallel);  // after the first step, the buckets are sorted
  check(net, expected, "DataParallel");
  ordered_step(net, ordered);
  check(net, expected, "OrderedSum");

  std::vector<Contender> contenders = {
      contender("not averaged", [&] { alone_step(net); }),
      contender("DataParallel", [&] { parallel_step(net, parallel); }),
      contender("one all-reduce after backward", [&] { flat_step(net, *world); }),
      contender("OrderedSum after backward", [&] { ordered_step(net, ordered); }),
  };
  // The order in which contenders take turns depends on nothing else, so ranks agree on it.
  for (Contender& one : contenders)
    one.run = [&world, run = one.run](int calls) {
      world->barrier();
      run(calls);
    };
  print(group, /*wall=*/true, contenders, take_turns(contenders, rounds_of(net, options), net.calls), results);
}

int measure_as_rank(const Options& options) {
  const auto world = dist::World::of_process();
  nlohmann::ordered_json results = nlohmann::ordered_json::object();
  for (const Net& net : nets(world->rank())) {
    if (world->rank() == 0) measure_one_rank(net, options, results);  // the other rank waits
    measure_ranks(net, world, options, results);
  }
  if (world->rank() == 0) write_json(options.json, results);
  return 0;
}

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (probe < 0 || bind(probe, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw Error("no free port: ", std::strerror(errno));
  close(probe);
  return ntohs(address.sin_port);
}

// Runs this program again as a rank, with the variables that a launcher sets. Only rank 0 prints.
pid_t start_rank(int rank, int port, char** argv) {
  const pid_t child = fork();
  if (child != 0) return child;
  const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", kRanks);
  set("LOCAL_WORLD_SIZE", kRanks);
  set("MASTER_PORT", port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  if (rank > 0 && !std::freopen("/dev/null", "w", stdout)) _exit(1);
  execv("/proc/self/exe", argv);
  _exit(1);
}

int run_ranks(char** argv) {
  const int port = free_port();
  std::vector<pid_t> children;
  children.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) children.push_back(start_rank(rank, port, argv));
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) failed = 1;
  }
  return failed;
}

int measure(int argc, char** argv) {
  at::set_num_threads(1);
  const Options options = parse(argc, argv);
  if (!std::getenv("RANK")) return run_ranks(argv);
  return dist::run([&] { return measure_as_rank(options); });
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { return composer::bench::measure(argc, argv); }
