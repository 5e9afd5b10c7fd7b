"""Virtual time: delays, faults, the plan and the simulator."""
