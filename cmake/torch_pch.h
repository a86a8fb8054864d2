// Precompiled header of the upper half: the stable, heavy part of ATen.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
