"""Simulation in virtual time: delays, faults, the plan and the simulator."""
