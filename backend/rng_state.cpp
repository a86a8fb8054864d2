#include "backend/rng_state.h"

#include <ATen/Context.h>

namespace framejit::backend {

void RngState::save(const std::vector<c10::Device>& devices) {
  states_.clear();
  auto add = [&](c10::Device device) {
    for (const auto& saved : states_) {
      if (saved.first == device) return;
    }
    at::Generator generator = at::globalContext().defaultGenerator(device);
    std::lock_guard<std::mutex> lock(generator.mutex());
    states_.emplace_back(device, generator.get_state());
  };
  add(c10::Device(c10::kCPU));
  for (c10::Device device : devices) add(device);
}

void RngState::set(const States& states) {
  for (const auto& [device, state] : states) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

void RngState::restore() {
  set(states_);
  states_.clear();
}

}  // namespace framejit::backend
